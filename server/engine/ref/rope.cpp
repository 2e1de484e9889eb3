// rope: rotates the interleaved pairs (2i, 2i + 1) of one head by its position's angles.
#include "ref.h"

namespace assay::ref {

void rope(float* head, int rope_dim, const float* cosine, const float* sine) {
  for (int i = 0; i < rope_dim / 2; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cosine[i] - b * sine[i];
    head[2 * i + 1] = a * sine[i] + b * cosine[i];
  }
}

}  // namespace assay::ref
