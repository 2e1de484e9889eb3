// argmax: the lowest index of the largest value.
#include "ref.h"

namespace assay::ref {

int argmax(const float* x, int n) {
  int best = 0;
  for (int i = 1; i < n; ++i) {
    if (x[i] > x[best] || (x[best] != x[best] && x[i] == x[i])) best = i;
  }
  return best;
}

}  // namespace assay::ref
