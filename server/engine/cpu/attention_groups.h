// Scores and weighted values of a block whose keys and values are kept at 4 bits (kv_q4.h), widened in registers.
//
// A number n stands for  half(half(scale * n) + minimum), and a float is taken to the nearest half by
//   x - (x - x / 8192)
// each step a float's, the inner one fused: the difference has 13 bits less than x, hence 11, and is x / 8192 with ties
// to even. So with x 8192 times what is meant, two steps do what a conversion to halves and back does in four. It is
// the nearest half too below the least normal one: everything there is a multiple of the least half. Nothing is beyond
// the largest, since groups are within kMostInGroup. With 2^26 scale and 2^13 minimum, which are exact, a value is
// six steps, in any lane.
//
// Of keys, lanes are positions, each with scales of its own. Of values, lanes are dimensions of one position, and
// where a register has sixteen lanes it holds what each number of a group stands for; a lane then picks.
#pragma once

#include "../ops.h"
#include "lanes8.h"
#include "outer_product.h"

namespace assay::cpu {
namespace {

constexpr float kScaleUp = 0x1p26f;
constexpr float kMinimumUp = 0x1p13f;
constexpr int kGroupBytes = kKvGroup / 2;

// The parts of a position block (ops.h) at 4 bits.
struct GroupBlock {
  GroupBlock(const uint8_t* block, int head_dim)
      : head_dim(head_dim),
        groups(head_dim / kKvGroup),
        keys(block),
        values(block + kPositionBlock * head_dim / 2),
        key_scale(reinterpret_cast<const uint16_t*>(block + kPositionBlock * head_dim)),
        value_scale_pairs(key_scale + groups * 2 * kPositionBlock) {}

  // How many vectors of sums a query has in a tile: sums, what is widened and its scales share the registers.
  template <typename Lanes, int kQueries>
  static constexpr int vectors() {
    return Lanes::width == 16 ? Lanes::template groups<kQueries>() : 2;
  }
  const float* value_scale() const { return nullptr; }  // of a position, as int8 has

  int head_dim;
  int groups;
  const uint8_t* keys;
  const uint8_t* values;
  const uint16_t* key_scale;          // [groups][2][kPositionBlock]
  const uint16_t* value_scale_pairs;  // [kPositionBlock][groups][2]
};

// 2^-13 x, to the nearest half.
template <typename Lanes>
inline typename Lanes::Float nearest_half(typename Lanes::Float x) {
  return Lanes::sub(x, Lanes::fnma(x, Lanes::all(0x1p-13f), x));
}

// What the numbers of a group stand for.
template <typename Lanes>
struct Widening {
  using Float = typename Lanes::Float;

  Float operator()(Float numbers) const {
    return nearest_half<Lanes>(Lanes::add(nearest_half<Lanes>(Lanes::mul(numbers, scale)), minimum));
  }

  Float scale;    // kScaleUp times as large
  Float minimum;  // kMinimumUp times
};

// The same where a group is alone in a register.
template <typename Lanes>
struct Picking {
  using Float = typename Lanes::Float;

  Picking(float scale, float minimum) : widen{Lanes::all(scale), Lanes::all(minimum)} {
    if constexpr (Lanes::width == 16) table = widen(Lanes::low(Lanes::indices()));  // 0 to 15
  }
  Float low(typename Lanes::Pairs pairs) const {
    if constexpr (Lanes::width == 16) {
      return Lanes::pick(table, pairs);
    } else {
      return widen(Lanes::low(pairs));
    }
  }
  Float high(typename Lanes::Pairs pairs) const {
    if constexpr (Lanes::width == 16) {
      return Lanes::pick(table, Lanes::upper(pairs));
    } else {
      return widen(Lanes::high(pairs));
    }
  }

  Widening<Lanes> widen;
  Float table;
};

inline void fetch(const void* line) { _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0); }

// Scores of kGroups groups of Lanes::width positions, the first of them `first`. Meanwhile the values of these
// positions are fetched, and their scales.
template <typename Lanes, int kQueries, int kGroups>
void scores_tile(const float* q, const GroupBlock& block, int first, float* scores) {
  using Float = typename Lanes::Float;
  constexpr int kBytes = kGroups * Lanes::width;  // of a tile, for each two dimensions
  Float total[kQueries][kGroups];
#pragma GCC unroll 12
  for (auto& row : total) {
#pragma GCC unroll 12
    for (auto& sum : row) sum = Lanes::zero();
  }
  const int head_dim = block.head_dim;
  const uint8_t* keys = block.keys + first * head_dim / 2;
  const uint8_t* values = block.values + first * head_dim / 2;
  const uint16_t* scales = block.key_scale + first;
  for (int group = 0; group < block.groups; ++group, scales += 2 * kPositionBlock) {
    for (int byte = 0; byte < kBytes * 4; byte += 64) {
      fetch(block.value_scale_pairs + (first * block.groups + group * kBytes) * 2 + byte / 2);
    }
    Widening<Lanes> widen[kGroups];
#pragma GCC unroll 12
    for (int g = 0; g < kGroups; ++g) {
      widen[g].scale = Lanes::mul(Lanes::load(scales + g * Lanes::width), Lanes::all(kScaleUp));
      widen[g].minimum = Lanes::mul(Lanes::load(scales + kPositionBlock + g * Lanes::width), Lanes::all(kMinimumUp));
    }
    for (int i = group * kGroupBytes; i < (group + 1) * kGroupBytes; ++i) {
      if (i * kBytes % 64 == 0) fetch(values + i * kBytes);
      typename Lanes::Pairs pairs[kGroups];
#pragma GCC unroll 12
      for (int g = 0; g < kGroups; ++g) pairs[g] = Lanes::pairs(keys + (g * head_dim / 2 + i) * Lanes::width);
      outer_product<Lanes, kQueries, kGroups>([&](int query) { return Lanes::all(q + query * head_dim + 2 * i); },
                                              [&](int g) { return widen[g](Lanes::low(pairs[g])); }, total);
      outer_product<Lanes, kQueries, kGroups>([&](int query) { return Lanes::all(q + query * head_dim + 2 * i + 1); },
                                              [&](int g) { return widen[g](Lanes::high(pairs[g])); }, total);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 12
    for (int g = 0; g < kGroups; ++g) Lanes::store(scores + i * kPositionBlock + g * Lanes::width, total[i][g]);
  }
}

// Weighted values over `count` positions, of the dimensions that kRuns runs of Lanes::width bytes have, from byte
// `byte` of a position on: low numbers, then, 16 dimensions on, high ones. scales: [kPositionBlock][groups][2], for
// Widening. Meanwhile as many positions' keys of the block at `next`, unless nullptr, are fetched, and their scales.
template <typename Lanes, int kQueries, int kRuns>
void values_tile(const float* weights, int count, const GroupBlock& block, const float* scales, int byte,
                 const uint8_t* next, float* out) {
  typename Lanes::Float total[kQueries][2 * kRuns];
#pragma GCC unroll 12
  for (auto& row : total) {
#pragma GCC unroll 12
    for (auto& sum : row) sum = Lanes::zero();
  }
  const int row_bytes = block.head_dim / 2;
  const uint8_t* values = block.values + byte;
  scales += byte / kGroupBytes * 2;
  for (int position = 0; position < count; ++position, values += row_bytes, scales += 2 * block.groups) {
    if (next != nullptr) {
      for (int i = 0; i < row_bytes; i += 64) fetch(next + position * row_bytes + i);
      for (int g = 0; position % 16 == 0 && g < block.groups; ++g) {
        fetch(next + kPositionBlock * block.head_dim + (position * block.groups + g * 16) * 4);
      }
    }
    typename Lanes::Float widened[2 * kRuns];
#pragma GCC unroll 12
    for (int run = 0; run < kRuns; ++run) {
      const float* scale = scales + run * Lanes::width / kGroupBytes * 2;
      const Picking<Lanes> pick(scale[0], scale[1]);
      const typename Lanes::Pairs pairs = Lanes::pairs(values + run * Lanes::width);
      widened[2 * run] = pick.low(pairs);
      widened[2 * run + 1] = pick.high(pairs);
    }
    outer_product<Lanes, kQueries, 2 * kRuns>(
        [&](int i) { return Lanes::all(weights + i * kPositionBlock + position); }, [&](int v) { return widened[v]; },
        total);
  }
#pragma GCC unroll 12
  for (int run = 0; run < kRuns; ++run) {
    const int at = byte + run * Lanes::width, d = at / kGroupBytes * kKvGroup + at % kGroupBytes;
#pragma GCC unroll 12
    for (int i = 0; i < kQueries; ++i) {
      Lanes::store(out + i * kMostHeadDim + d, total[i][2 * run]);
      Lanes::store(out + i * kMostHeadDim + d + kGroupBytes, total[i][2 * run + 1]);
    }
  }
}

// Weighted values of a whole head, kMostHeadDim floats a query.
template <typename Lanes, int kQueries>
void weigh_values(const float* weights, int count, const GroupBlock& block, const uint8_t* next, float* out) {
  static constexpr float kUp[2 * 8] = {kScaleUp, kMinimumUp, kScaleUp, kMinimumUp, kScaleUp, kMinimumUp,
                                       kScaleUp, kMinimumUp, kScaleUp, kMinimumUp, kScaleUp, kMinimumUp,
                                       kScaleUp, kMinimumUp, kScaleUp, kMinimumUp};
  alignas(64) float scales[kPositionBlock * kMostHeadDim / kKvGroup * 2];
  for (int i = 0; i < count * block.groups * 2; i += Lanes::width) {
    Lanes::store(scales + i, Lanes::mul(Lanes::load(block.value_scale_pairs + i), Lanes::load(kUp)));
  }
  constexpr int kRuns = GroupBlock::vectors<Lanes, kQueries>() / 2, kBytes = kRuns * Lanes::width;
  int byte = 0;
  for (; byte + kBytes <= block.head_dim / 2; byte += kBytes, next = nullptr) {
    values_tile<Lanes, kQueries, kRuns>(weights, count, block, scales, byte, next, out);
  }
  for (; byte < block.head_dim / 2; byte += Lanes::width, next = nullptr) {
    values_tile<Lanes, kQueries, 1>(weights, count, block, scales, byte, next, out);
  }
}

}  // namespace
}  // namespace assay::cpu
