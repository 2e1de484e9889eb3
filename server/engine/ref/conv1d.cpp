// conv1d: each channel's weighted sum over consecutive positions, oldest first, then SiLU.
#include "ref.h"

namespace assay::ref {

void conv1d(const float* const* rows, const float* weights, size_t stride, int taps, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    float total = 0.0f;
    for (int tap = 0; tap < taps; ++tap) total += weights[static_cast<size_t>(tap) * stride + i] * rows[tap][i];
    out[i] = total / (1.0f + exp(-total));
  }
}

}  // namespace assay::ref
