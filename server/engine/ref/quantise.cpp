// quantise: blocks of 32 values to int8 with one float scale, and their sum; then
// the residuals of the widest blocks at 1 / 256 of the scale.
#include <cmath>

#include "../widest.h"
#include "ref.h"

namespace assay::ref {
namespace {

// Values in units of the block's scale.
struct Scaled {
  explicit Scaled(const float* x) {
    float largest = 0.0f;
    for (int i = 0; i < kBlock; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (int i = 0; i < kBlock; ++i) value[i] = x[i] * inverse;
    scale = largest / 127.0f;
  }

  float value[kBlock];
  float scale;
};

int8_t rounded(float value) {
  // Not finite when x is not: such a model is lost, but the conversion must stay defined.
  if (!(std::fabs(value) < 1024.0f)) return 0;
  const int nearest = static_cast<int>(std::nearbyint(value));
  return static_cast<int8_t>(nearest > 127 ? 127 : nearest < -127 ? -127 : nearest);
}

}  // namespace

void quantise(const float* x, int n, const QuantisedRow& row) {
  const int blocks = n / kBlock;
  for (int block = 0; block < blocks; ++block) {
    const Scaled scaled(x + block * kBlock);
    int total = 0;
    for (int i = 0; i < kBlock; ++i) {
      const int8_t q = rounded(scaled.value[i]);
      row.q[block * kBlock + i] = q;
      total += q;
    }
    row.scale[block] = scaled.scale;
    row.sum[block] = static_cast<float>(total);
  }
  find_widest(row.scale, blocks, row.refinements, row.refined);
  for (int extra = 0; extra < row.refinements; ++extra) {
    const int block = row.refined[extra];
    const Scaled scaled(x + block * kBlock);
    const int at = blocks + extra;
    int total = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float left = scaled.value[i] - static_cast<float>(row.q[block * kBlock + i]);
      const int8_t q = rounded(left * 256.0f);
      row.q[at * kBlock + i] = q;
      total += q;
    }
    row.scale[at] = scaled.scale * 0x1p-8f;
    row.sum[at] = 0.0f;
    row.sum[block] += static_cast<float>(total) * 0x1p-8f;
  }
}

}  // namespace assay::ref
