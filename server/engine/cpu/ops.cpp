#include "../ref/ref.h"
#include "cpu.h"

namespace assay {

const Ops& avx2_ops() {
  static constexpr Ops ops{"avx2",
                           cpu::kKeyLane,
                           cpu::kDecodeRows,
                           cpu::kTileQueries,
                           cpu::embed,
                           cpu::rmsnorm,
                           cpu::quantise,
                           cpu::qlinear_decode,
                           cpu::qlinear_prefill,
                           cpu::rope,
                           cpu::rope_halves,
                           cpu::kv_write,
                           cpu::attention_decode,
                           cpu::attention_fold,
                           cpu::attention_prefill,
                           cpu::conv1d,
                           ref::delta_gates,
                           cpu::delta,
                           cpu::delta_fold,
                           cpu::silu_mul,
                           cpu::sigmoid_mul,
                           cpu::argmax};
  return ops;
}

}  // namespace assay
