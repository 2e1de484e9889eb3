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
                           cpu::silu_mul,
                           cpu::sigmoid_mul,
                           cpu::argmax};
  return ops;
}

}  // namespace assay
