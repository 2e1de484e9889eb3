#include "../../ref/ref.h"
#include "avx512.h"

namespace assay {

const Ops& avx512_ops() {
  static constexpr Ops ops{"avx512",
                           cpu::avx512::kKeyLane,
                           cpu::kDecodeRows,
                           cpu::avx512::kTileQueries,
                           cpu::embed,
                           cpu::avx512::rmsnorm,
                           cpu::avx512::quantise,
                           cpu::avx512::qlinear_decode,
                           cpu::avx512::qlinear_prefill,
                           cpu::rope,
                           cpu::rope_halves,
                           cpu::avx512::kv_write,
                           cpu::avx512::attention_decode,
                           cpu::attention_fold,
                           cpu::avx512::attention_prefill,
                           cpu::conv1d,
                           ref::delta_gates,
                           cpu::delta,
                           cpu::delta_fold,
                           cpu::avx512::silu_mul,
                           cpu::sigmoid_mul,
                           cpu::argmax};
  return ops;
}

}  // namespace assay
