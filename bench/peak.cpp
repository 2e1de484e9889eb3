/* The int8 multiply peak of one core: how many multiply-adds of bytes a second it can do at best.
 *
 * Contract: assay_peak_macs(kind, milliseconds) runs independent chains of the instructions that an int8 matrix
 * product is made of, for about so long, and returns multiply-adds a second; 0 when this CPU or build
 * lacks the instructions. Kinds: 0, vpmaddubsw into vpaddw on 32 bytes (AVX2); 1, vpdpbusd on 64 bytes (AVX-512
 * VNNI), both on registers alone, eight chains covering their latency; 2, as 0, but with each chain's sum loaded and
 * stored every time. The last is no peak: it is how the reference machine of bench/floors.py was measured, and serves
 * to compare with that machine alone. Threads call it side by side.
 */
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>

namespace {

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr int kRounds = 20000;
constexpr int kChains = 8;

// One asm block a round, so that the compiler has nothing to spill and nothing to reorder.
__attribute__((target("avx2"))) void rounds_avx2() {
  for (int round = 0; round < kRounds; ++round) {
    asm volatile(
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm2\n\tvpaddw %%ymm2, %%ymm8, %%ymm8\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm3\n\tvpaddw %%ymm3, %%ymm9, %%ymm9\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm4\n\tvpaddw %%ymm4, %%ymm10, %%ymm10\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm5\n\tvpaddw %%ymm5, %%ymm11, %%ymm11\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm2\n\tvpaddw %%ymm2, %%ymm12, %%ymm12\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm3\n\tvpaddw %%ymm3, %%ymm13, %%ymm13\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm4\n\tvpaddw %%ymm4, %%ymm14, %%ymm14\n\t"
        "vpmaddubsw %%ymm0, %%ymm1, %%ymm5\n\tvpaddw %%ymm5, %%ymm15, %%ymm15" ::
            : "ymm2", "ymm3", "ymm4", "ymm5", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15");
  }
}

__attribute__((target("avx2"))) void rounds_stored() {
  alignas(32) uint8_t sums[kChains][32] = {};  // on the stack, whose stores are forwarded fastest
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 8
    for (int chain = 0; chain < kChains; ++chain) {
      asm volatile(
          "vmovdqa %0, %%ymm3\n\tvpmaddubsw %%ymm0, %%ymm1, %%ymm2\n\t"
          "vpaddw %%ymm2, %%ymm3, %%ymm3\n\tvmovdqa %%ymm3, %0"
          : "+m"(sums[chain])::"ymm2", "ymm3");
    }
  }
}

__attribute__((target("avx512f,avx512vnni"))) void rounds_vnni() {
  for (int round = 0; round < kRounds; ++round) {
    asm volatile(
        "vpdpbusd %%zmm0, %%zmm1, %%zmm8\n\tvpdpbusd %%zmm0, %%zmm1, %%zmm9\n\t"
        "vpdpbusd %%zmm0, %%zmm1, %%zmm10\n\tvpdpbusd %%zmm0, %%zmm1, %%zmm11\n\t"
        "vpdpbusd %%zmm0, %%zmm1, %%zmm12\n\tvpdpbusd %%zmm0, %%zmm1, %%zmm13\n\t"
        "vpdpbusd %%zmm0, %%zmm1, %%zmm14\n\tvpdpbusd %%zmm0, %%zmm1, %%zmm15" ::
            : "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  }
}

}  // namespace

extern "C" double assay_peak_macs(int32_t kind, int32_t milliseconds) {
  const bool vnni = kind == 1;
  __builtin_cpu_init();
  if (vnni ? !__builtin_cpu_supports("avx512vnni") : !__builtin_cpu_supports("avx2")) return 0;
  double best = 0;
  const double end = now() + milliseconds * 1e-3;
  for (double start = now(); start < end;) {
    (vnni ? rounds_vnni : kind == 2 ? rounds_stored : rounds_avx2)();
    const double stop = now();
    const double macs = static_cast<double>(kRounds) * kChains * (vnni ? 64 : 32) / (stop - start);
    if (macs > best) best = macs;
    start = stop;
  }
  return best;
}

#else

extern "C" double assay_peak_macs(int32_t, int32_t) { return 0; }

#endif
