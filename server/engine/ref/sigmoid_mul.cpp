// sigmoid_mul: x / (1 + exp(-gate)), in place.
#include "ref.h"

namespace assay::ref {

void sigmoid_mul(const float* gate, int n, float* x) {
  for (int i = 0; i < n; ++i) x[i] = x[i] / (1.0f + exp(-gate[i]));
}

}  // namespace assay::ref
