// quantise: blocks of 32 values to int8 with one float scale, and scale times their sum.
#include "ref.h"

#include <cmath>

namespace assay::ref {

void quantise(const float* x, int n, int8_t* q, float* scale, float* sum) {
  for (int block = 0; block < n / kBlock; ++block, x += kBlock, q += kBlock) {
    float largest = 0.0f;
    for (int i = 0; i < kBlock; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    int total = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float scaled = x[i] * inverse;
      // Not finite when x is not: such a model is lost, but the conversion must stay defined.
      const int rounded = std::fabs(scaled) < 128.0f ? static_cast<int>(std::nearbyint(scaled)) : 0;
      q[i] = static_cast<int8_t>(rounded);
      total += rounded;
    }
    scale[block] = largest / 127.0f;
    sum[block] = scale[block] * static_cast<float>(total);
  }
}

}  // namespace assay::ref
