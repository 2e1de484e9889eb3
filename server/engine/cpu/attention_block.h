// Attention of up to kMostQueries queries over one position block, and the fold of blocks.
//
// Everything attention does is here, once: decode and prefill call the same
// functions, and an output's operations do not depend on how many queries share
// the block. A score is one fused chain over the head's dimensions; a weighted
// value is one fused chain over the positions; hidden positions weigh exactly 0.
#pragma once

#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

struct BlockState {
  alignas(32) float weighted[kMostQueries][kMostHeadDim];
  float largest[kMostQueries];
  float sum[kMostQueries];
};

// total[i][j] += a[i] * b[j]. The smaller side is held in registers and the
// other passes through one, so that 12 sums fit beside them in 16 registers.
template <int kA, int kB, typename LoadA, typename LoadB>
inline void outer_product(const LoadA& load_a, const LoadB& load_b, __m256 (&total)[kA][kB]) {
  if constexpr (kA <= kB) {
    __m256 a[kA];
#pragma GCC unroll 6
    for (int i = 0; i < kA; ++i) a[i] = load_a(i);
#pragma GCC unroll 6
    for (int j = 0; j < kB; ++j) {
      const __m256 b = load_b(j);
#pragma GCC unroll 6
      for (int i = 0; i < kA; ++i) total[i][j] = _mm256_fmadd_ps(a[i], b, total[i][j]);
    }
  } else {
    __m256 b[kB];
#pragma GCC unroll 6
    for (int j = 0; j < kB; ++j) b[j] = load_b(j);
#pragma GCC unroll 6
    for (int i = 0; i < kA; ++i) {
      const __m256 a = load_a(i);
#pragma GCC unroll 6
      for (int j = 0; j < kB; ++j) total[i][j] = _mm256_fmadd_ps(a, b[j], total[i][j]);
    }
  }
}

// Scores of kGroups groups of eight positions. Meanwhile the keys of the groups
// after the next and the values of these positions are fetched.
template <int kQueries, int kGroups>
void scores_tile(const float* q, int head_dim, const uint16_t* keys, const uint16_t* values, float* scores) {
  __m256 total[kQueries][kGroups] = {};
  const int halves = kGroups * kKeyLane;  // of a tile, for each dimension
  for (int d = 0; d < head_dim; ++d) {
    _mm_prefetch(reinterpret_cast<const char*>(keys + (2 * head_dim + d) * halves), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(values + d * halves), _MM_HINT_T0);
    outer_product<kQueries, kGroups>([&](int i) { return _mm256_broadcast_ss(q + i * head_dim + d); },
                                     [&](int g) { return load_half(keys + (g * head_dim + d) * kKeyLane); }, total);
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int g = 0; g < kGroups; ++g) _mm256_storeu_ps(scores + i * kPositionBlock + g * kKeyLane, total[i][g]);
  }
}

// Weighted values of kVectors * 8 dimensions over `count` positions.
template <int kQueries, int kVectors>
void values_tile(const float* weights, int count, const uint16_t* values, int head_dim, float* out) {
  __m256 total[kQueries][kVectors] = {};
  for (int position = 0; position < count; ++position) {
    outer_product<kQueries, kVectors>(
        [&](int i) { return _mm256_broadcast_ss(weights + i * kPositionBlock + position); },
        [&](int v) { return load_half(values + position * head_dim + 8 * v); }, total);
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(out + i * kMostHeadDim + 8 * v, total[i][v]);
  }
}

// Scores to weights in place: exp(score - largest), 0 from `visible` on up to `count` (a multiple of 8).
inline void softmax_block(float* scores, int visible, int count, float* largest, float* sum) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 hidden = _mm256_set1_ps(-__builtin_inff());
  const auto shown = [&](int i) {
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(visible - i), lanes));
  };
  __m256 most = hidden;
  for (int i = 0; i < count; i += 8) {
    most = _mm256_max_ps(most, _mm256_blendv_ps(hidden, _mm256_loadu_ps(scores + i), shown(i)));
  }
  *largest = max_lanes(most);
  const __m256 shift = _mm256_set1_ps(*largest);
  __m256 total = _mm256_setzero_ps();
  for (int i = 0; i < count; i += 8) {
    const __m256 weight = _mm256_and_ps(exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + i), shift)), shown(i));
    _mm256_storeu_ps(scores + i, weight);
    total = _mm256_add_ps(total, weight);
  }
  *sum = sum_lanes(total);
}

template <int kQueries>
void attend_tile(const Queries& queries, const KvHead& head, int block, BlockState& state) {
  constexpr int kGroups = kQueries <= 3 ? 4 : 2;
  constexpr int kVectors = kQueries <= 3 ? 4 : 2;
  const int head_dim = queries.head_dim;
  const int begin = block * kPositionBlock;
  const uint16_t* keys = head.keys + static_cast<size_t>(begin) * head_dim;
  const uint16_t* values = head.values + static_cast<size_t>(begin) * head_dim;
  int seen = 0;
  for (int i = 0; i < kQueries; ++i) seen = queries.visible[i] - begin > seen ? queries.visible[i] - begin : seen;
  seen = seen < kPositionBlock ? seen : kPositionBlock;

  alignas(32) float scores[kQueries * kPositionBlock];
  for (int i = 0; i < seen; i += kGroups * kKeyLane) {
    const size_t at = static_cast<size_t>(i) * head_dim;
    scores_tile<kQueries, kGroups>(queries.q, head_dim, keys + at, values + at, scores + i);
  }
  const int rounded = (seen + kKeyLane - 1) / kKeyLane * kKeyLane;
  for (int i = 0; i < kQueries; ++i) {
    softmax_block(scores + i * kPositionBlock, queries.visible[i] - begin, rounded, &state.largest[i], &state.sum[i]);
  }
  int d = 0;
  for (; d + 8 * kVectors <= head_dim; d += 8 * kVectors) {
    values_tile<kQueries, kVectors>(scores, seen, values + d, head_dim, state.weighted[0] + d);
  }
  for (; d < head_dim; d += 8) values_tile<kQueries, 1>(scores, seen, values + d, head_dim, state.weighted[0] + d);
}

inline void attend_block(const Queries& queries, const KvHead& head, int block, BlockState& state) {
  switch (queries.count) {
    case 1:
      return attend_tile<1>(queries, head, block, state);
    case 2:
      return attend_tile<2>(queries, head, block, state);
    case 3:
      return attend_tile<3>(queries, head, block, state);
    case 4:
      return attend_tile<4>(queries, head, block, state);
    case 5:
      return attend_tile<5>(queries, head, block, state);
    default:
      return attend_tile<6>(queries, head, block, state);
  }
}

// Adds a later block's state to a running one.
inline void fold(float* weighted, float& largest, float& sum, const float* next, float next_largest, float next_sum,
                 int head_dim) {
  const float joint = largest > next_largest ? largest : next_largest;
  const float keep = exp1(largest - joint);
  const float gain = exp1(next_largest - joint);
  const __m256 keep8 = _mm256_set1_ps(keep);
  const __m256 gain8 = _mm256_set1_ps(gain);
  for (int d = 0; d < head_dim; d += 8) {
    const __m256 kept = _mm256_mul_ps(_mm256_loadu_ps(weighted + d), keep8);
    _mm256_storeu_ps(weighted + d, _mm256_fmadd_ps(_mm256_loadu_ps(next + d), gain8, kept));
  }
  sum = sum * keep + next_sum * gain;
  largest = joint;
}

inline void normalise(const float* weighted, float sum, int head_dim, float* out) {
  const __m256 inverse = _mm256_set1_ps(1.0f / sum);
  for (int d = 0; d < head_dim; d += 8) {
    _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_loadu_ps(weighted + d), inverse));
  }
}

}  // namespace
}  // namespace assay::cpu
