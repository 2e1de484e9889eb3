#include "isa.h"

#include <cstring>
#include <string>

#include "error.h"

#ifdef ASSAY_HAS_X86
#include <cpuid.h>
#endif

namespace assay {
namespace {

bool has_avx2() {
#ifdef ASSAY_HAS_X86
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_F16C) == 0) return false;
  // The builtins also ask the operating system whether it keeps the registers.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool has_avx512() {
#ifdef ASSAY_HAS_X86
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

}  // namespace

const char* detect_isa() { return has_avx512() ? "avx512" : has_avx2() ? "avx2" : "plain"; }

const Ops& select_ops(const char* isa) {
  const char* wanted = isa != nullptr ? isa : detect_isa();
  if (std::strcmp(wanted, "plain") == 0) return plain_ops();
#ifdef ASSAY_HAS_X86
  if (std::strcmp(wanted, "avx2") == 0) {
    if (!has_avx2()) unsupported("this CPU lacks AVX2, FMA or F16C, which the instruction set 'avx2' needs");
    return avx2_ops();
  }
  if (std::strcmp(wanted, "avx512") == 0) {
    if (!has_avx512()) {
      unsupported("this CPU lacks AVX-512 F, BW, DQ, VL or VNNI, which the instruction set 'avx512' needs");
    }
    return avx512_ops();
  }
#endif
  unsupported("this build has no instruction set '" + std::string(wanted) + "'");
}

}  // namespace assay
