// quantise: blocks of 32 values to int8 with one float scale and scale times their
// sum, then the residuals of the widest blocks in the same form.
#include <cmath>

#include "../widest.h"
#include "ref.h"

namespace assay::ref {
namespace {

void quantise_block(const float* x, int8_t* q, float* scale, float* sum) {
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
  *scale = largest / 127.0f;
  *sum = *scale * static_cast<float>(total);
}

}  // namespace

void quantise(const float* x, int n, const QuantisedRow& row) {
  const int blocks = n / kBlock;
  for (int block = 0; block < blocks; ++block) {
    quantise_block(x + block * kBlock, row.q + block * kBlock, row.scale + block, row.sum + block);
  }
  find_widest(row.scale, blocks, row.refinements, row.refined);
  for (int extra = 0; extra < row.refinements; ++extra) {
    const int block = row.refined[extra];
    float residual[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      residual[i] = x[block * kBlock + i] - row.scale[block] * static_cast<float>(row.q[block * kBlock + i]);
    }
    const int at = blocks + extra;
    quantise_block(residual, row.q + at * kBlock, row.scale + at, row.sum + at);
  }
}

}  // namespace assay::ref
