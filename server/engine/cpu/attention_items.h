// Scores and weighted values of a block whose keys and values are kept one by one: as halves, or as int8.
//
// Items are widened as they are read. Of int8, a position's key scale multiplies its score; its value scale
// multiplies its weight, after the sum of weights was taken (attention_block.h).
#pragma once

#include "../ops.h"
#include "lanes8.h"
#include "outer_product.h"

namespace assay::cpu {
namespace {

// The parts of a position block (ops.h) of items of one type.
template <typename Item>
struct ItemBlock {
  ItemBlock(const uint8_t* block, int head_dim)
      : head_dim(head_dim),
        keys(reinterpret_cast<const Item*>(block)),
        values(keys + static_cast<size_t>(kPositionBlock) * head_dim),
        key_scale(reinterpret_cast<const float*>(values + static_cast<size_t>(kPositionBlock) * head_dim)) {}

  // How many vectors of sums a query has in a tile.
  template <typename Lanes, int kQueries>
  static constexpr int vectors() {
    return Lanes::template groups<kQueries>();
  }
  static constexpr bool scaled = sizeof(Item) == 1;
  const float* value_scale() const { return scaled ? key_scale + kPositionBlock : nullptr; }

  int head_dim;
  const Item* keys;
  const Item* values;
  const float* key_scale;  // only where scaled
};

// Scores of kGroups groups of Lanes::width positions, the first of them `first`. Meanwhile the values of these
// positions are fetched.
template <typename Lanes, int kQueries, int kGroups, typename Item>
void scores_tile(const float* q, const ItemBlock<Item>& block, int first, float* scores) {
  typename Lanes::Float total[kQueries][kGroups];
  for (auto& row : total) {
    for (auto& sum : row) sum = Lanes::zero();
  }
  const int head_dim = block.head_dim;
  const Item* keys = block.keys + static_cast<size_t>(first) * head_dim;
  const Item* values = block.values + static_cast<size_t>(first) * head_dim;
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
      if (block.scaled) score = Lanes::mul(score, Lanes::load(block.key_scale + first + g * Lanes::width));
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

// Weighted values of a whole head, kMostHeadDim floats a query.
template <typename Lanes, int kQueries, typename Item>
void weigh_values(const float* weights, int count, const ItemBlock<Item>& block, const uint8_t* next, float* out) {
  constexpr int kVectors = ItemBlock<Item>::template vectors<Lanes, kQueries>(), kDimensions = kVectors * Lanes::width;
  const int head_dim = block.head_dim;
  const Item* ahead = reinterpret_cast<const Item*>(next);  // its keys come first
  int d = 0;
  for (; d + kDimensions <= head_dim; d += kDimensions, ahead = nullptr) {
    values_tile<Lanes, kQueries, kVectors>(weights, count, block.values + d, head_dim, ahead, out + d);
  }
  for (; d < head_dim; d += 8, ahead = nullptr) {
    values_tile<Lanes8, kQueries, 1>(weights, count, block.values + d, head_dim, ahead, out + d);
  }
}

}  // namespace
}  // namespace assay::cpu
