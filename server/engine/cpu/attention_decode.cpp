// attention, decode form: partial results of single blocks, which threads share out, and their fold.
#include "attention_block.h"

namespace assay::cpu {

void attention_decode(const Queries& queries, const KvHead& head, int block, float* partials, size_t stride) {
  BlockState state;
  attend_block(queries, head, block, state);
  const size_t width = static_cast<size_t>(queries.head_dim);
  for (int i = 0; i < queries.count; ++i) {
    float* out = partials + static_cast<size_t>(i) * stride;
    __builtin_memcpy(out, state.weighted[i], width * sizeof(float));
    out[width] = state.largest[i];
    out[width + 1] = state.sum[i];
  }
}

void attention_fold(const float* partials, int count, int head_dim, float* out) {
  alignas(32) float weighted[kMostHeadDim];
  const size_t width = static_cast<size_t>(head_dim);
  __builtin_memcpy(weighted, partials, width * sizeof(float));
  float largest = partials[width];
  float sum = partials[width + 1];
  for (int block = 1; block < count; ++block) {
    const float* next = partials + static_cast<size_t>(block) * (width + kPartialTail);
    fold(weighted, largest, sum, next, next[width], next[width + 1], head_dim);
  }
  normalise(weighted, sum, head_dim, out);
}

}  // namespace assay::cpu
