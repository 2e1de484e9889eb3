// silu_mul: gate / (1 + exp(-gate)) * up.
#include "ref.h"

namespace assay::ref {

void silu_mul(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + exp(-gate[i])) * up[i];
}

}  // namespace assay::ref
