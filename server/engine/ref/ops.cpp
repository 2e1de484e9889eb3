#include "ref.h"

namespace assay {

const Ops& plain_ops() {
  static const Ops ops{"plain",
                       ref::kKeyLane,
                       2,
                       6,
                       ref::embed,
                       ref::rmsnorm,
                       ref::quantise,
                       ref::qlinear_decode,
                       ref::qlinear_prefill,
                       ref::rope,
                       ref::rope_halves,
                       ref::kv_write,
                       ref::attention_decode,
                       ref::attention_fold,
                       ref::attention_prefill,
                       ref::conv1d,
                       ref::delta_gates,
                       ref::delta,
                       ref::delta_fold,
                       ref::silu_mul,
                       ref::sigmoid_mul,
                       ref::argmax};
  return ops;
}

}  // namespace assay
