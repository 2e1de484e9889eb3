// Keys and values at 4 bits: groups of 32 values of one position's head, each with a scale and a minimum as halves.
//
// A value is scale * n, n from 0 to 15, plus the minimum, each of the two rounded to the nearest half: what a
// processor of halves computes, and one of floats too if it rounds after each step. So what attention
// reads is halves, as where they are kept so. 20 bytes hold 32 values: 5 bits each.
//
// Keys are mixed before: a head times the normalised Hadamard matrix. A few dimensions of keys are far larger than the
// rest and would take the steps of their group; mixed, every dimension has a share of each. Queries are
// mixed too, and since the matrix is orthogonal, scores are what they were.
#pragma once

#include <cmath>
#include <cstdint>

#include "half.h"

#ifdef __CUDACC__
#define ASSAY_ANYWHERE __host__ __device__
#else
#define ASSAY_ANYWHERE
#endif

namespace assay {

constexpr int kKvGroup = 32;  // values under one scale
constexpr float kMostInGroup = 32000.0f;  // what is beyond it is taken for it, so that no step leaves the halves

// How many neighbouring dimensions are mixed: the largest power of two that divides the head.
ASSAY_ANYWHERE constexpr int mixed_width(int head_dim) { return head_dim & -head_dim; }

// A head of a key or query mixed in place: the butterflies of steps 1, 2, 4, ... in order, then the norm.
inline void mix_head(float* head, int head_dim) {
  const int width = mixed_width(head_dim);
  for (int step = 1; step < width; step *= 2) {
    for (int first = 0; first < head_dim; first += 2 * step) {
      for (int i = first; i < first + step; ++i) {
        const float a = head[i], b = head[i + step];
        head[i] = a + b;
        head[i + step] = a - b;
      }
    }
  }
  const float norm = 1.0f / std::sqrt(static_cast<float>(width));
  for (int i = 0; i < head_dim; ++i) head[i] *= norm;
}

// A group as it is kept.
struct NarrowGroup {
  uint16_t scale;
  uint16_t minimum;
  uint8_t n[kKvGroup];
};

ASSAY_ANYWHERE inline float within_group(float value) {
  value = value > kMostInGroup ? kMostInGroup : value;
  return value < -kMostInGroup ? -kMostInGroup : value;
}

// The nearest form of a group: from its smallest value in fifteen steps to its largest.
inline NarrowGroup narrow_group(const float* x) {
  float least = within_group(x[0]), most = least;
  for (int i = 1; i < kKvGroup; ++i) {
    const float value = within_group(x[i]);
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  NarrowGroup group;
  group.minimum = float_to_half(least);
  group.scale = float_to_half((most - least) / 15.0f);
  const float minimum = half_to_float(group.minimum), scale = half_to_float(group.scale);
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int i = 0; i < kKvGroup; ++i) {
    const float n = std::nearbyint((within_group(x[i]) - minimum) * inverse);
    group.n[i] = static_cast<uint8_t>(n < 0.0f ? 0.0f : n > 15.0f ? 15.0f : n);
  }
  return group;
}

inline uint16_t widened(uint16_t scale, uint16_t minimum, int n) {
  const uint16_t above = float_to_half(half_to_float(scale) * static_cast<float>(n));
  return float_to_half(half_to_float(above) + half_to_float(minimum));
}

}  // namespace assay
