// rope_halves: rotates the pairs (i, i + rope_dim / 2) of one head by its position's angles.
#include "ref.h"

namespace assay::ref {

void rope_halves(float* head, int rope_dim, const float* cosine, const float* sine) {
  const int half = rope_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[half + i];
    head[i] = a * cosine[i] - b * sine[i];
    head[half + i] = a * sine[i] + b * cosine[i];
  }
}

}  // namespace assay::ref
