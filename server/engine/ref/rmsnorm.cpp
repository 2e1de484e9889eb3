// rmsnorm: x / sqrt(mean(x^2) + epsilon) * weight.
#include <cmath>

#include "ref.h"

namespace assay::ref {

void rmsnorm(const float* x, const float* weight, int n, float epsilon, float* out) {
  double squares = 0.0;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const float inverse = 1.0f / std::sqrt(static_cast<float>(squares / n) + epsilon);
  for (int i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

}  // namespace assay::ref
