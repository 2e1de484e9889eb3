// Q4_0, Q4_1 and nibble panels, packed, times one to four rows: what the decode form does.
//
// Nibbles are at most 15 and bytes at most 128 in size, so the eight sums of two
// products of a lane stay within int16 (8 * 2 * 15 * 128 = 30720).
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr int kNibblePrefetch = 4480;  // bytes ahead in the stream

template <Form kForm>
struct NibbleBlock {
  static constexpr int kHeader = kForm == Form::nibbles ? 128 : kForm == Form::q4_1 ? 64 : 32;
  static constexpr int kBytes = kHeader + 256;

  explicit NibbleBlock(const uint8_t* at) : weights(at + kHeader) {
    for (int g = 0; g < 2; ++g) {
      scale[g] = scale_at(at, g);
      if constexpr (kForm == Form::nibbles) {
        minimum[g] = load_floats(at + 64 + 32 * g);
      } else {
        minimum[g] =
            kForm == Form::q4_1 ? load_half(at + 32 + 16 * g) : _mm256_mul_ps(scale[g], _mm256_set1_ps(-8.0f));
      }
    }
  }

  // Of weight rows 8 g to 8 g + 7.
  static __m256 scale_at(const uint8_t* at, int g) {
    return kForm == Form::nibbles ? load_floats(at + 32 * g) : load_half(at + 16 * g);
  }

  const uint8_t* weights;
  __m256 scale[2];
  __m256 minimum[2];
};

// 16 weight rows times one block of each of kStreams streams of activations.
template <int kStreams>
inline void nibble_dots(const uint8_t* weights, const int8_t* const (&q)[kStreams], __m256i (&dot)[kStreams][2]) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[kStreams][2];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v + 32 * g));
      const __m256i low = _mm256_and_si256(w, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
#pragma GCC unroll 4
      for (int s = 0; s < kStreams; ++s) {
        const __m256i both = _mm256_add_epi16(_mm256_maddubs_epi16(low, broadcast4(q[s] + 4 * v)),
                                              _mm256_maddubs_epi16(high, broadcast4(q[s] + 16 + 4 * v)));
        if (v == 0) {
          pairs[s][g] = both;
        } else {
          accumulate16(pairs[s][g], both);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) {
    for (int g = 0; g < 2; ++g) dot[s][g] = _mm256_madd_epi16(pairs[s][g], ones);
  }
}

// The residual chain of one row.
template <Form kForm>
inline void nibble_residual(const uint8_t* panel, const Row& row, int refinements, __m256 (&total)[2]) {
  for (int extra = 0; extra < refinements; ++extra) {
    const uint8_t* at = panel + row.refined[extra] * NibbleBlock<kForm>::kBytes;
    const int8_t* const q[1] = {row.residual + extra * kBlock};
    __m256i dot[1][2];
    nibble_dots<1>(at + NibbleBlock<kForm>::kHeader, q, dot);
    for (int g = 0; g < 2; ++g) {
      total[g] = add_block(_mm256_cvtepi32_ps(dot[0][g]), NibbleBlock<kForm>::scale_at(at, g),
                           row.residual_scale[extra], total[g]);
    }
  }
}

// One row: a refined block's residual meets the weights while they are in registers.
template <Form kForm>
void nibble_row(const uint8_t* panel, int blocks, const Row& row, int refinements, __m256 (&out)[2]) {
  using Block = NibbleBlock<kForm>;
  const bool all_refined = refinements == blocks;
  __m256 total[2] = {};
  __m256 residual[2] = {};
  int extra = 0;
  int next = refinements > 0 ? row.refined[0] : blocks;
  for (int b = 0; b < blocks; ++b, panel += Block::kBytes) {
    prefetch<Block::kBytes, true>(panel + kNibblePrefetch);
    const Block block(panel);
    __m256 product[2];
    if (b == next) {
      const int8_t* const q[2] = {row.q + b * kBlock, row.residual + extra * kBlock};
      __m256i dot[2][2];
      nibble_dots<2>(block.weights, q, dot);
      for (int g = 0; g < 2; ++g) {
        product[g] = all_refined ? joined(dot[0][g], dot[1][g]) : _mm256_cvtepi32_ps(dot[0][g]);
        residual[g] = add_block(_mm256_cvtepi32_ps(dot[1][g]), block.scale[g], row.residual_scale[extra], residual[g]);
      }
      ++extra;
      next = extra < refinements ? row.refined[extra] : blocks;
    } else {
      const int8_t* const q[1] = {row.q + b * kBlock};
      __m256i dot[1][2];
      nibble_dots<1>(block.weights, q, dot);
      for (int g = 0; g < 2; ++g) product[g] = _mm256_cvtepi32_ps(dot[0][g]);
    }
    for (int g = 0; g < 2; ++g) {
      total[g] = add_block(product[g], block.scale[g], block.minimum[g], row.sum[b], row.scale[b], total[g]);
    }
  }
  for (int g = 0; g < 2; ++g) out[g] = all_refined ? total[g] : _mm256_add_ps(total[g], residual[g]);
}

// Two to four rows.
template <Form kForm, int kRows>
void nibble_rows(const uint8_t* panel, int blocks, const Rows& rows, int first, const Output& output, int column,
                 int valid) {
  using Block = NibbleBlock<kForm>;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const Row start(rows, blocks, first);
  __m256 total[kRows][2] = {};
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* at = panel + b * Block::kBytes;
    prefetch<Block::kBytes, false>(at + kNibblePrefetch);
    const int8_t* q[kRows];
    for (int row = 0; row < kRows; ++row) q[row] = start.q + (static_cast<size_t>(row) * stored + b) * kBlock;
    __m256i dot[kRows][2];
    nibble_dots<kRows>(at + Block::kHeader, q, dot);
    const Block block(at);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const size_t here = static_cast<size_t>(row) * stored + b;
      for (int g = 0; g < 2; ++g) {
        total[row][g] = add_block(_mm256_cvtepi32_ps(dot[row][g]), block.scale[g], block.minimum[g], start.sum[here],
                                  start.scale[here], total[row][g]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    __m256 residual[2] = {};
    nibble_residual<kForm>(panel, Row(rows, blocks, first + row), rows.refinements, residual);
    for (int g = 0; g < 2; ++g) total[row][g] = _mm256_add_ps(total[row][g], residual[g]);
    store16(output, first + row, column, valid, total[row]);
  }
}

template <Form kForm>
void nibble_panel(const uint8_t* panel, int blocks, const Rows& rows, const Output& output, int column, int valid) {
  int row = 0;
  if (rows.refinements != blocks) {
    for (; row + 4 <= rows.count; row += 4)
      nibble_rows<kForm, 4>(panel, blocks, rows, row, output, column, valid);
    if (rows.count - row == 3) nibble_rows<kForm, 3>(panel, blocks, rows, row, output, column, valid), row += 3;
    if (rows.count - row == 2) nibble_rows<kForm, 2>(panel, blocks, rows, row, output, column, valid), row += 2;
  }
  for (; row < rows.count; ++row) {
    __m256 total[2];
    nibble_row<kForm>(panel, blocks, Row(rows, blocks, row), rows.refinements, total);
    store16(output, row, column, valid, total);
  }
}

}  // namespace
}  // namespace assay::cpu
