// Attention of a tile of queries over one position block, and the fold of blocks.
//
// Everything attention does is here, once, for any width of vector (`Lanes`):
// decode and prefill call the same functions, and an output's operations do not
// depend on how many queries share the block. A score is one fused chain over
// the head's dimensions; a weighted value is one fused chain over the
// positions; hidden positions weigh exactly 0. Int8 keys and values are widened
// as they are read: a position's key scale multiplies its score, its value
// scale multiplies its weight after the sum of weights was taken.
#pragma once

#include "../ops.h"
#include "lanes8.h"

namespace assay::cpu {
namespace {

struct BlockState {
  alignas(64) float weighted[kMostQueries][kMostHeadDim];
  float largest[kMostQueries];
  float sum[kMostQueries];
};

// The parts of a position block (ops.h) of items of one type.
template <typename Item>
struct BlockView {
  BlockView(const uint8_t* block, int head_dim)
      : keys(reinterpret_cast<const Item*>(block)),
        values(keys + static_cast<size_t>(kPositionBlock) * head_dim),
        key_scale(reinterpret_cast<const float*>(values + static_cast<size_t>(kPositionBlock) * head_dim)),
        value_scale(key_scale + kPositionBlock) {}

  static constexpr bool scaled = sizeof(Item) == 1;

  const Item* keys;
  const Item* values;
  const float* key_scale;  // only where scaled
  const float* value_scale;
};

// total[i][j] += a[i] * b[j]. The smaller side is held in registers and the
// other passes through one, so that the sums fit beside them.
template <typename Lanes, int kA, int kB, typename LoadA, typename LoadB>
inline void outer_product(const LoadA& load_a, const LoadB& load_b, typename Lanes::Float (&total)[kA][kB]) {
  if constexpr (kA <= kB) {
    typename Lanes::Float a[kA];
#pragma GCC unroll 12
    for (int i = 0; i < kA; ++i) a[i] = load_a(i);
#pragma GCC unroll 12
    for (int j = 0; j < kB; ++j) {
      const typename Lanes::Float b = load_b(j);
#pragma GCC unroll 12
      for (int i = 0; i < kA; ++i) total[i][j] = Lanes::fma(a[i], b, total[i][j]);
    }
  } else {
    typename Lanes::Float b[kB];
#pragma GCC unroll 12
    for (int j = 0; j < kB; ++j) b[j] = load_b(j);
#pragma GCC unroll 12
    for (int i = 0; i < kA; ++i) {
      const typename Lanes::Float a = load_a(i);
#pragma GCC unroll 12
      for (int j = 0; j < kB; ++j) total[i][j] = Lanes::fma(a, b[j], total[i][j]);
    }
  }
}

// Scores of kGroups groups of Lanes::width positions. Meanwhile the values of
// these positions are fetched.
template <typename Lanes, int kQueries, int kGroups, typename Item>
void scores_tile(const float* q, int head_dim, const Item* keys, const Item* values, const float* key_scale,
                 float* scores) {
  typename Lanes::Float total[kQueries][kGroups];
  for (auto& row : total) {
    for (auto& sum : row) sum = Lanes::zero();
  }
  constexpr int kItems = kGroups * Lanes::width;                                // of a tile, for each dimension
  constexpr int kStride = 64 / static_cast<int>(kItems * sizeof(Item)) > 1 ? 2 : 1;  // dimensions a cache line holds
  for (int d = 0; d < head_dim; ++d) {
    if (d % kStride == 0) {
      _mm_prefetch(reinterpret_cast<const char*>(values + d * kItems), _MM_HINT_T0);
    }
    outer_product<Lanes, kQueries, kGroups>(
        [&](int i) { return Lanes::all(q + i * head_dim + d); },
        [&](int g) { return Lanes::load(keys + (g * head_dim + d) * Lanes::width); }, total);
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < kQueries; ++i) {
      typename Lanes::Float score = total[i][g];
      if (BlockView<Item>::scaled) score = Lanes::mul(score, Lanes::load(key_scale + g * Lanes::width));
      Lanes::store(scores + i * kPositionBlock + g * Lanes::width, score);
    }
  }
}

// Weighted values of kVectors * Lanes::width dimensions over `count` positions. Meanwhile as many positions'
// keys of the block at `next`, unless nullptr, are fetched.
template <typename Lanes, int kQueries, int kVectors, typename Item>
void values_tile(const float* weights, int count, const Item* values, int head_dim, const Item* next, float* out) {
  typename Lanes::Float total[kQueries][kVectors];
  for (auto& row : total) {
    for (auto& sum : row) sum = Lanes::zero();
  }
  constexpr int kLine = 64 / static_cast<int>(sizeof(Item));
  for (int position = 0; position < count; ++position) {
    if (next != nullptr) {
      for (int d = 0; d < head_dim; d += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(next + position * head_dim + d), _MM_HINT_T0);
      }
    }
    outer_product<Lanes, kQueries, kVectors>(
        [&](int i) { return Lanes::all(weights + i * kPositionBlock + position); },
        [&](int v) { return Lanes::load(values + position * head_dim + Lanes::width * v); }, total);
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) Lanes::store(out + i * kMostHeadDim + Lanes::width * v, total[i][v]);
  }
}

// Scores to weights in place: exp(score - largest), times the value's scale where there is one; 0 from `visible`
// on up to `count` (a multiple of Lanes::width).
template <typename Lanes>
inline void softmax_block(float* scores, int visible, int count, const float* value_scale, float* largest,
                          float* sum) {
  using Float = typename Lanes::Float;
  const Float hidden = Lanes::all(-__builtin_inff());
  Float most = hidden;
  for (int i = 0; i < count; i += Lanes::width) {
    most = Lanes::max(most, Lanes::first(visible - i, Lanes::load(scores + i), hidden));
  }
  *largest = Lanes::largest(most);
  const Float shift = Lanes::all(*largest);
  Float total = Lanes::zero();
  for (int i = 0; i < count; i += Lanes::width) {
    const Float shifted = Lanes::sub(Lanes::load(scores + i), shift);
    Float weight = Lanes::first(visible - i, Lanes::exp(shifted), Lanes::zero());
    total = Lanes::add(total, weight);
    if (value_scale != nullptr) {
      weight = Lanes::first(visible - i, Lanes::mul(weight, Lanes::load(value_scale + i)), Lanes::zero());
    }
    Lanes::store(scores + i, weight);
  }
  *sum = Lanes::total(total);
}

template <typename Lanes, int kQueries, typename Item>
void attend_tile(const Queries& queries, const uint8_t* block, const uint8_t* next, int first, BlockState& state) {
  constexpr int kGroups = Lanes::template groups<kQueries>();
  const int head_dim = queries.head_dim;
  const BlockView<Item> view(block, head_dim);
  int seen = 0;
  for (int i = 0; i < kQueries; ++i) seen = queries.visible[i] - first > seen ? queries.visible[i] - first : seen;
  seen = seen < kPositionBlock ? seen : kPositionBlock;

  alignas(64) float scores[kQueries * kPositionBlock];
  for (int i = 0; i < seen; i += kGroups * Lanes::width) {
    const size_t at = static_cast<size_t>(i) * static_cast<size_t>(head_dim);
    scores_tile<Lanes, kQueries, kGroups>(queries.q, head_dim, view.keys + at, view.values + at, view.key_scale + i,
                                          scores + i);
  }
  const int rounded = (seen + Lanes::width - 1) / Lanes::width * Lanes::width;
  const float* value_scale = BlockView<Item>::scaled ? view.value_scale : nullptr;
  for (int i = 0; i < kQueries; ++i) {
    softmax_block<Lanes>(scores + i * kPositionBlock, queries.visible[i] - first, rounded, value_scale,
                         &state.largest[i], &state.sum[i]);
  }
  constexpr int kDimensions = kGroups * Lanes::width;
  const Item* ahead = reinterpret_cast<const Item*>(next);  // its keys come first
  int d = 0;
  for (; d + kDimensions <= head_dim; d += kDimensions, ahead = nullptr) {
    values_tile<Lanes, kQueries, kGroups>(scores, seen, view.values + d, head_dim, ahead, state.weighted[0] + d);
  }
  for (; d < head_dim; d += 8, ahead = nullptr) {
    values_tile<Lanes8, kQueries, 1>(scores, seen, view.values + d, head_dim, ahead, state.weighted[0] + d);
  }
}

template <typename Lanes, typename Item, int kQueries = Lanes::most_queries>
inline void attend_items(const Queries& queries, const uint8_t* block, const uint8_t* next, int first,
                         BlockState& state) {
  if constexpr (kQueries > 1) {
    if (queries.count < kQueries) return attend_items<Lanes, Item, kQueries - 1>(queries, block, next, first, state);
  }
  attend_tile<Lanes, kQueries, Item>(queries, block, next, first, state);
}

// Eight bytes of two numbers each, times a scale, plus a minimum, as halves: the low ones, and `apart` on the high.
inline void widen_eight(__m128i pairs, __m256 scale, __m256 minimum, uint16_t* out, int apart) {
  const __m128i mask = _mm_set1_epi8(15);
  const auto nearest = [](__m256 value) { return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT); };
  const auto put = [&](__m128i n, uint16_t* to) {
    const __m128i above = nearest(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(n))));
    const __m128i value = nearest(_mm256_add_ps(_mm256_cvtph_ps(above), minimum));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
  };
  put(_mm_and_si128(pairs, mask), out);
  put(_mm_and_si128(_mm_srli_epi16(pairs, 4), mask), out + apart);
}

inline __m128i eight_bytes(const uint8_t* from) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)); }
inline __m256 eight_halves(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline __m256 one_half(uint16_t half) { return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(half))); }

// The first `seen` positions of a block at 4 bits as a block of halves.
template <int kLane>
inline void widen_block(const uint8_t* block, int head_dim, int seen, uint16_t* out) {
  const int groups = head_dim / kKvGroup, pairs = head_dim / 2;
  const uint16_t* key_scales = reinterpret_cast<const uint16_t*>(block + kPositionBlock * head_dim);
  const uint16_t* value_scales = key_scales + groups * 2 * kPositionBlock;
  for (int position = 0; position < seen; position += 8) {
    const int within = position % kLane;
    const uint8_t* from = block + position / kLane * pairs * kLane + within;
    uint16_t* to = out + position / kLane * head_dim * kLane + within;
    for (int g = 0; g < groups; ++g) {
      const __m256 scale = eight_halves(key_scales + g * 2 * kPositionBlock + position);
      const __m256 minimum = eight_halves(key_scales + (g * 2 + 1) * kPositionBlock + position);
      for (int i = g * kKvGroup / 2; i < (g + 1) * kKvGroup / 2; ++i) {
        widen_eight(eight_bytes(from + i * kLane), scale, minimum, to + 2 * i * kLane, kLane);
      }
    }
  }
  const uint8_t* from = block + kPositionBlock * pairs;
  uint16_t* to = out + kPositionBlock * head_dim;
  for (int g = 0; g < seen * groups; ++g, from += kKvGroup / 2, to += kKvGroup) {
    const __m256 scale = one_half(value_scales[2 * g]), minimum = one_half(value_scales[2 * g + 1]);
    widen_eight(eight_bytes(from), scale, minimum, to, kKvGroup / 2);
    widen_eight(eight_bytes(from + 8), scale, minimum, to + 8, kKvGroup / 2);
  }
}

template <typename Lanes>
inline void attend_block(const Queries& queries, const uint8_t* block, const uint8_t* next, int first,
                         BlockState& state) {
  if (queries.type == KvType::q4) {
    alignas(64) uint16_t widened[2 * kPositionBlock * kMostHeadDim];
    int seen = 0;
    for (int i = 0; i < queries.count; ++i) {
      const int visible = queries.visible[i] - first;
      seen = visible > seen ? visible : seen;
    }
    widen_block<Lanes::width>(block, queries.head_dim, seen < kPositionBlock ? seen : kPositionBlock, widened);
    return attend_items<Lanes, uint16_t>(queries, reinterpret_cast<const uint8_t*>(widened), nullptr, first, state);
  }
  if (queries.type == KvType::f16) return attend_items<Lanes, uint16_t>(queries, block, next, first, state);
  attend_items<Lanes, int8_t>(queries, block, next, first, state);
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

// One block's partial results (ops.h: attention_decode).
template <typename Lanes>
inline void attend_partials(const Queries& queries, const uint8_t* block, const uint8_t* next, int first,
                            float* partials, size_t stride) {
  BlockState state;
  attend_block<Lanes>(queries, block, next, first, state);
  const size_t width = static_cast<size_t>(queries.head_dim);
  for (int i = 0; i < queries.count; ++i) {
    float* out = partials + static_cast<size_t>(i) * stride;
    __builtin_memcpy(out, state.weighted[i], width * sizeof(float));
    out[width] = state.largest[i];
    out[width + 1] = state.sum[i];
  }
}

// Every block, folded in order (ops.h: attention_prefill).
template <typename Lanes>
inline void attend_whole(const Queries& queries, const uint8_t* const* blocks, float* const* outputs) {
  BlockState running;
  attend_block<Lanes>(queries, blocks[0], nullptr, 0, running);
  int last = 0;
  for (int i = 0; i < queries.count; ++i) last = queries.visible[i] > last ? queries.visible[i] : last;
  BlockState next;
  for (int first = kPositionBlock; first < last; first += kPositionBlock) {
    attend_block<Lanes>(queries, blocks[first / kPositionBlock], nullptr, first, next);
    for (int i = 0; i < queries.count; ++i) {
      if (queries.visible[i] <= first) continue;  // this query sees nothing of the block
      fold(running.weighted[i], running.largest[i], running.sum[i], next.weighted[i], next.largest[i], next.sum[i],
           queries.head_dim);
    }
  }
  for (int i = 0; i < queries.count; ++i) normalise(running.weighted[i], running.sum[i], queries.head_dim, outputs[i]);
}

}  // namespace
}  // namespace assay::cpu
