// Attention of a tile of queries over one position block, and the fold of blocks.
//
// Everything attention does is here, once, for any width of vector (`Lanes`):
// decode and prefill call the same functions, and an output's operations do not
// depend on how many queries share the block. A score is one fused chain over
// the head's dimensions; a weighted value is one fused chain over the
// positions; hidden positions weigh exactly 0. How keys and values are read is
// said where they are kept as items (attention_items.h) and as groups at 4 bits
// (attention_groups.h).
#pragma once

#include "attention_groups.h"
#include "attention_items.h"

namespace assay::cpu {
namespace {

struct BlockState {
  alignas(64) float weighted[kMostQueries][kMostHeadDim];
  float largest[kMostQueries];
  float sum[kMostQueries];
};

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

template <typename Lanes, int kQueries, typename Block>
void attend_tile(const Queries& queries, const Block& block, const uint8_t* next, int first, BlockState& state) {
  constexpr int kGroups = Block::template vectors<Lanes, kQueries>();
  int seen = 0;
  for (int i = 0; i < kQueries; ++i) seen = queries.visible[i] - first > seen ? queries.visible[i] - first : seen;
  seen = seen < kPositionBlock ? seen : kPositionBlock;

  alignas(64) float scores[kQueries * kPositionBlock];
  for (int i = 0; i < seen; i += kGroups * Lanes::width) {
    scores_tile<Lanes, kQueries, kGroups>(queries.q, block, i, scores + i);
  }
  const int rounded = (seen + Lanes::width - 1) / Lanes::width * Lanes::width;
  for (int i = 0; i < kQueries; ++i) {
    softmax_block<Lanes>(scores + i * kPositionBlock, queries.visible[i] - first, rounded, block.value_scale(),
                         &state.largest[i], &state.sum[i]);
  }
  weigh_values<Lanes, kQueries>(scores, seen, block, next, state.weighted[0]);
}

template <typename Lanes, typename Block, int kQueries = Lanes::most_queries>
inline void attend_as(const Queries& queries, const Block& block, const uint8_t* next, int first, BlockState& state) {
  if constexpr (kQueries > 1) {
    if (queries.count < kQueries) return attend_as<Lanes, Block, kQueries - 1>(queries, block, next, first, state);
  }
  attend_tile<Lanes, kQueries>(queries, block, next, first, state);
}

template <typename Lanes>
inline void attend_block(const Queries& queries, const uint8_t* block, const uint8_t* next, int first,
                         BlockState& state) {
  const auto attend = [&](const auto& view) { attend_as<Lanes>(queries, view, next, first, state); };
  if (queries.type == KvType::f16) return attend(ItemBlock<uint16_t>(block, queries.head_dim));
  if (queries.type == KvType::q4) return attend(GroupBlock(block, queries.head_dim));
  attend(ItemBlock<int8_t>(block, queries.head_dim));
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
