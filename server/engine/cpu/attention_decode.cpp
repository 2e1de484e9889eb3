// attention, decode form: partial results of single blocks, which threads share out, and their fold.
#include "attention_block.h"
#include "cpu.h"

namespace assay::cpu {

void attention_decode(const Queries& queries, const uint8_t* block, const uint8_t* next, int first, float* partials,
                      size_t stride) {
  attend_partials<Lanes8>(queries, block, next, first, partials, stride);
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
