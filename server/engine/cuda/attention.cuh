// The arithmetic that the decode and the prefill form of attention share.
//
// A tile is 16 queries of one key/value head; a warp works on 32 positions of a block
// (a quarter) at a time. With g = lane / 4 and t = lane % 4 a lane holds, of four runs of eight
// positions, the scores of queries g and g + 8 at positions 2t and 2t + 1. Queries
// and weights meet keys and values as halves, split in two (high and low) so that
// nothing but the cache's own rounding is lost; products accumulate in floats.
//
// What is computed is fixed: a score is one chain over the dimensions; a block's
// largest score is exact; a quarter's sum is four pairs in order, then lanes at distance
// 1 and 2; a quarter's values are one chain over its positions; a block's sum and
// values are its quarters' in order; blocks fold in order. Which warp does a quarter, and
// what else stands in the tile, changes no bit.
#pragma once

#include "kernels.cuh"
#include "matrix.cuh"

namespace assay::cuda {

constexpr int kQuarter = 32;  // positions
constexpr int kQuarters = kPositionBlock / kQuarter;
constexpr int kFragments = 4;  // of a chunk of 32 dimensions: high of its two products, low of them

struct Split {
  uint32_t high;
  uint32_t low;
};

// Two floats as halves and what the halves leave.
__device__ __forceinline__ Split split(float a, float b) {
  const uint16_t high_a = half_bits(a), high_b = half_bits(b);
  const uint16_t low_a = half_bits(a - half_value(high_a)), low_b = half_bits(b - half_value(high_b));
  return {two_halves(high_a, high_b), two_halves(low_a, low_b)};
}

// A tile's queries as left sides of half products; lane (g, t) has dimensions 8t to 8t + 7 of a chunk.
// query(i) is the tile's query i, or nullptr where there is none.
template <typename Query>
__device__ __forceinline__ void store_queries(Shared<uint4> fragments, int chunk, int head_dim, float scale,
                                              const Query& query) {
  const int g = lane_index() / 4, first = chunk * 32 + lane_index() % 4 * 8;
  Split parts[2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* q = query(g + 8 * half);
    const bool there = q != nullptr && first < head_dim;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a = there ? q[first + 2 * i] * scale : 0.0f, b = there ? q[first + 2 * i + 1] * scale : 0.0f;
      parts[half][i] = split(a, b);
    }
  }
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const Split &a = parts[0][2 * step], &b = parts[1][2 * step], &c = parts[0][2 * step + 1],
                &d = parts[1][2 * step + 1];
    fragments.put((chunk * kFragments + step) * kWarp + lane_index(), make_uint4(a.high, b.high, c.high, d.high));
    fragments.put((chunk * kFragments + 2 + step) * kWarp + lane_index(), make_uint4(a.low, b.low, c.low, d.low));
  }
}

// Integers become halves as the last bits of 1024: no conversion, of which a device does few.
constexpr uint32_t kThousands = 0x64006400u;       // 1024, twice
constexpr uint32_t kMinusThousands = 0xe400e400u;  // -1024
constexpr uint32_t kMinusMiddle = 0xe480e480u;     // -(1024 + 128)

// Four signed bytes as two pairs of halves, exactly.
__device__ __forceinline__ uint2 bytes_to_halves(uint32_t bytes) {
  const uint32_t above = bytes ^ 0x80808080u;  // by 128
  return make_uint2(sum_of_halves(__byte_perm(above, kThousands, 0x5150), kMinusMiddle),
                    sum_of_halves(__byte_perm(above, kThousands, 0x5352), kMinusMiddle));
}

// Two numbers at 4 bits, in bits 0 to 3 and 16 to 19 of n, as the halves that they stand for (kv_q4.h).
__device__ __forceinline__ uint32_t widened(uint32_t n, uint32_t scales, uint32_t minima) {
  const uint32_t numbers = sum_of_halves((n & 0x000f000fu) | kThousands, kMinusThousands);
  return sum_of_halves(product_of_halves(numbers, scales), minima);
}

// Eight items of the cache as the right sides of two products.
template <KvType kType>
__device__ __forceinline__ uint4 load_items(const uint8_t* items, int index) {
  if constexpr (kType == KvType::f16) return __ldg(reinterpret_cast<const uint4*>(items) + index);
  const uint2 bytes = __ldg(reinterpret_cast<const uint2*>(items) + index);
  const uint2 first = bytes_to_halves(bytes.x), second = bytes_to_halves(bytes.y);
  return make_uint4(first.x, first.y, second.x, second.y);
}

// Eight keys of a position, dimensions 8t to 8t + 7 of a chunk of 32.
template <KvType kType>
__device__ __forceinline__ uint4 load_keys(const uint8_t* head, const KvLayout& layout, int position, int chunk) {
  const int t = lane_index() % 4, index = (position * (layout.padded() / 32) + chunk) * 4 + t;
  if constexpr (kType != KvType::q4) return load_items<kType>(head, index);
  const uint32_t n = __ldg(reinterpret_cast<const uint32_t*>(head) + index);
  const uint32_t group =
      __ldg(reinterpret_cast<const uint32_t*>(head + layout.scale_offset()) + chunk * kPositionBlock + position);
  const uint32_t scale = __byte_perm(group, 0, 0x1010), minimum = __byte_perm(group, 0, 0x3232);
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = widened(n >> (4 * i), scale, minimum);
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Eight values of dimension 8 part + g: positions 2t, 2t + 1, 8 + 2t, ... of a quarter.
template <KvType kType>
__device__ __forceinline__ uint4 load_values(const uint8_t* head, const KvLayout& layout, int quarter, int part) {
  const uint8_t* values = head + layout.value_offset();
  if constexpr (kType != KvType::q4) {
    return load_items<kType>(values, (quarter * (layout.head_dim / 8) + part) * kWarp + lane_index());
  }
  const int t = lane_index() % 4;
  const uint2 bytes = __ldg(reinterpret_cast<const uint2*>(values) +
                            (quarter * (layout.head_dim / 16) + part / 2) * kWarp + lane_index());
  const int shift = part % 2 * 4;
  const uint2* groups = reinterpret_cast<const uint2*>(head + layout.scale_offset() + layout.scale_bytes()) +
                        (part / 4 * kPositionBlock + quarter * kQuarter) / 2 + t;
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 group = __ldg(groups + 4 * i);
    const uint32_t n = (i < 2 ? bytes.x : bytes.y) >> (i % 2 * 8 + shift);
    pairs[i] = widened(n, __byte_perm(group.x, group.y, 0x5410), __byte_perm(group.x, group.y, 0x7632));
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ void product_of(float (&total)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[2] = {b0, b1};
  product_half(total, left, right);
}

// Scores of a quarter: scores[run][0, 1] of query g, [2, 3] of query g + 8.
template <KvType kType>
__device__ __forceinline__ void quarter_scores(Shared<uint4> fragments, const uint8_t* head, const KvLayout& layout,
                                               int quarter, float (&scores)[4][4]) {
  const int g = lane_index() / 4, t = lane_index() % 4, chunks = layout.padded() / 32;
#pragma unroll
  for (int run = 0; run < 4; ++run) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[run][i] = 0.0f;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    uint4 q[kFragments];
#pragma unroll
    for (int i = 0; i < kFragments; ++i) q[i] = fragments.get((chunk * kFragments + i) * kWarp + lane_index());
#pragma unroll
    for (int run = 0; run < 4; ++run) {
      const int position = quarter * kQuarter + run * 8 + g;
      const uint4 key = load_keys<kType>(head, layout, position, chunk);
      product_of(scores[run], q[0], key.x, key.y);
      product_of(scores[run], q[2], key.x, key.y);
      product_of(scores[run], q[1], key.z, key.w);
      product_of(scores[run], q[3], key.z, key.w);
    }
  }
  if constexpr (kType == KvType::int8) {
    const float* scales = reinterpret_cast<const float*>(head + layout.scale_offset()) + quarter * kQuarter;
#pragma unroll
    for (int run = 0; run < 4; ++run) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[run][i] = scores[run][i] * __ldg(scales + run * 8 + 2 * t + i % 2);
    }
  }
}

constexpr float kNothing = -__builtin_huge_valf();  // the largest of no scores

// The largest visible score of queries g and g + 8; seen[i] is how many positions of the quarter they see.
__device__ __forceinline__ void quarter_largest(const float (&scores)[4][4], const int (&seen)[2],
                                                float (&largest)[2]) {
  const int t = lane_index() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = kNothing;
#pragma unroll
    for (int run = 0; run < 4; ++run) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (run * 8 + 2 * t + i < seen[half]) most = fmaxf(most, scores[run][2 * half + i]);
      }
    }
    most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
    largest[half] = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
  }
}

// A quarter's weights as left sides of two products, and their sums.
struct Weights {
  uint4 high[2];
  uint4 low[2];
};

template <KvType kType>
__device__ __forceinline__ Weights quarter_weights(const float (&scores)[4][4], const int (&seen)[2],
                                                   const float (&largest)[2], const uint8_t* head,
                                                   const KvLayout& layout, int quarter, float (&sum)[2]) {
  const int t = lane_index() % 4;
  Split parts[4][2];
  sum[0] = sum[1] = 0.0f;
#pragma unroll
  for (int run = 0; run < 4; ++run) {
    float scale[2] = {1.0f, 1.0f};
    if constexpr (kType == KvType::int8) {
      const float* scales = reinterpret_cast<const float*>(head + layout.scale_offset()) + kPositionBlock;
      scale[0] = __ldg(scales + quarter * kQuarter + run * 8 + 2 * t);
      scale[1] = __ldg(scales + quarter * kQuarter + run * 8 + 2 * t + 1);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float weight[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool visible = run * 8 + 2 * t + i < seen[half];
        weight[i] = visible ? exponential(scores[run][2 * half + i] - largest[half]) : 0.0f;
        sum[half] += weight[i];
      }
      parts[run][half] = split(weight[0] * scale[0], weight[1] * scale[1]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(kFullWarp, sum[half], 1);
    sum[half] += __shfl_xor_sync(kFullWarp, sum[half], 2);
  }
  Weights weights;
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const Split(&first)[2] = parts[2 * step], (&second)[2] = parts[2 * step + 1];
    weights.high[step] = make_uint4(first[0].high, first[1].high, second[0].high, second[1].high);
    weights.low[step] = make_uint4(first[0].low, first[1].low, second[0].low, second[1].low);
  }
  return weights;
}

// Weighted values of a quarter in dimensions 8 part + 2t, + 1: [0, 1] of query g, [2, 3] of query g + 8.
template <KvType kType>
__device__ __forceinline__ void quarter_values(const Weights& weights, const uint8_t* head, const KvLayout& layout,
                                               int quarter, int part, float (&values)[4]) {
  const uint4 items = load_values<kType>(head, layout, quarter, part);
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = 0.0f;
  product_of(values, weights.high[0], items.x, items.y);
  product_of(values, weights.low[0], items.x, items.y);
  product_of(values, weights.high[1], items.z, items.w);
  product_of(values, weights.low[1], items.z, items.w);
}

// How two states fold: the earlier one is multiplied by `keep`, the later one by `gain`.
struct Fold {
  float largest;
  float keep;
  float gain;

  __device__ Fold(float before, float next) : largest(fmaxf(before, next)) {
    keep = exponential(before - largest);
    gain = exponential(next - largest);
  }
  __device__ float operator()(float before, float next) const { return __fmaf_rn(next, gain, before * keep); }
};

}  // namespace assay::cuda
