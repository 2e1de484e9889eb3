// Q4_0, Q4_1 and nibble panels, packed, times up to twelve rows: both forms of qlinear.
//
// A register of nibbles is taken apart when it is needed, which costs less than
// to read it unpacked.
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr int kNibbleAhead = 5440;  // bytes ahead in the stream

template <Form kForm>
struct Nibbles16 {
  static constexpr int kHeader = kForm == Form::nibbles ? 128 : kForm == Form::q4_1 ? 64 : 32;
  static constexpr int kBytes = kHeader + 256;

  explicit Nibbles16(const uint8_t* at) : scale(scale_at(at)), minimum(minimum_at(at, scale)) {}

  static __m512 scale_at(const uint8_t* at) {
    return kForm == Form::nibbles ? _mm512_loadu_ps(at) : load_halves16(at);
  }
  static __m512 minimum_at(const uint8_t* at, __m512 scale) {
    if constexpr (kForm == Form::nibbles) return _mm512_loadu_ps(at + 64);
    return kForm == Form::q4_1 ? load_halves16(at + 32) : _mm512_mul_ps(scale, _mm512_set1_ps(-8.0f));
  }

  __m512 scale;
  __m512 minimum;
};

// A block of 16 weight rows times one block of each of kStreams streams, `at(stream)`. For one or two streams high
// nibbles stay where they are, 16 times too large, and have sums of their own.
template <int kStreams, typename At>
inline void nibble_dots16(const uint8_t* weights, const At& at, __m512i (&dot)[kStreams]) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i other[kStreams];
#pragma GCC unroll 12
  for (int s = 0; s < kStreams; ++s) dot[s] = other[s] = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512i w = load64(weights + 64 * v);
    const __m512i low = _mm512_and_si512(w, mask);
    const __m512i high =
        kStreams <= 2 ? _mm512_andnot_si512(mask, w) : _mm512_and_si512(_mm512_srli_epi16(w, 4), mask);
#pragma GCC unroll 12
    for (int s = 0; s < kStreams; ++s) dot[s] = _mm512_dpbusd_epi32(dot[s], low, spread4(at(s) + 4 * v));
#pragma GCC unroll 12
    for (int s = 0; s < kStreams; ++s) {
      __m512i& sum = kStreams <= 2 ? other[s] : dot[s];
      sum = _mm512_dpbusd_epi32(sum, high, spread4(at(s) + 16 + 4 * v));
    }
  }
  if constexpr (kStreams <= 2) {
    for (int s = 0; s < kStreams; ++s) dot[s] = _mm512_add_epi32(dot[s], _mm512_srai_epi32(other[s], 4));
  }
}

// One row: a refined block's residual meets the weights while they are in registers.
template <Form kForm>
__m512 nibble_row16(const uint8_t* panel, int blocks, const Row& row, int refinements) {
  using Block = Nibbles16<kForm>;
  const bool all_refined = refinements == blocks;
  __m512 total = _mm512_setzero_ps();
  __m512 residual = _mm512_setzero_ps();
  int extra = 0;
  int next = refinements > 0 ? row.refined[0] : blocks;
  for (int b = 0; b < blocks; ++b, panel += Block::kBytes) {
    prefetch<Block::kBytes, true>(panel + kNibbleAhead);
    const Block block(panel);
    __m512 product;
    if (b == next) {
      const int8_t* const q[2] = {row.q + b * kBlock, row.residual + extra * kBlock};
      __m512i dot[2];
      nibble_dots16<2>(panel + Block::kHeader, [&](int s) { return q[s]; }, dot);
      if (all_refined) {
        const __m512i joined = _mm512_add_epi32(_mm512_slli_epi32(dot[0], 8), dot[1]);
        product = _mm512_mul_ps(_mm512_cvtepi32_ps(joined), _mm512_set1_ps(0x1p-8f));
      } else {
        product = _mm512_cvtepi32_ps(dot[0]);
        residual = add_block(_mm512_cvtepi32_ps(dot[1]), block.scale, row.residual_scale[extra], residual);
      }
      ++extra;
      next = extra < refinements ? row.refined[extra] : blocks;
    } else {
      __m512i dot[1];
      nibble_dots16<1>(panel + Block::kHeader, [&](int) { return row.q + b * kBlock; }, dot);
      product = _mm512_cvtepi32_ps(dot[0]);
    }
    total = add_block(product, block.scale, block.minimum, row.sum[b], row.scale[b], total);
  }
  return all_refined ? total : _mm512_add_ps(total, residual);
}

// Several rows, not all of whose blocks are refined.
template <Form kForm, int kRows>
void nibble_rows16(const uint8_t* panel, int blocks, const Rows& rows, int first, const Output& output, int column,
                   int valid) {
  using Block = Nibbles16<kForm>;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const Row start(rows, blocks, first);
  __m512 total[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) total[row] = _mm512_setzero_ps();
  const int8_t* q = start.q;
  for (int b = 0; b < blocks; ++b, q += kBlock) {
    const uint8_t* at = panel + b * Block::kBytes;
    if (first == 0) prefetch<Block::kBytes, false>(at + kNibbleAhead);
    __m512i dot[kRows];
    nibble_dots16<kRows>(
        at + Block::kHeader, [&](int row) { return q + static_cast<size_t>(row) * stored * kBlock; }, dot);
    const Block block(at);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      const size_t here = static_cast<size_t>(row) * stored + b;
      total[row] = add_block(_mm512_cvtepi32_ps(dot[row]), block.scale, block.minimum, start.sum[here],
                             start.scale[here], total[row]);
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    const Row own(rows, blocks, first + row);
    __m512 residual = _mm512_setzero_ps();
    for (int extra = 0; extra < rows.refinements; ++extra) {
      const uint8_t* at = panel + own.refined[extra] * Block::kBytes;
      __m512i dot[1];
      nibble_dots16<1>(at + Block::kHeader, [&](int) { return own.residual + extra * kBlock; }, dot);
      residual = add_block(_mm512_cvtepi32_ps(dot[0]), Block::scale_at(at), own.residual_scale[extra], residual);
    }
    store16(output, first + row, column, valid, _mm512_add_ps(total[row], residual));
  }
}

template <Form kForm>
void nibble_panel16(const uint8_t* panel, int blocks, const Rows& rows, const Output& output, int column, int valid) {
  if (rows.count == 1 || rows.refinements == blocks) {
    for (int row = 0; row < rows.count; ++row) {
      store16(output, row, column, valid,
              nibble_row16<kForm>(panel, blocks, Row(rows, blocks, row), rows.refinements));
    }
    return;
  }
  each_tile<12, 8, 6, 4, 3, 2, 1>(rows.count, [&](auto size, int row) {
    nibble_rows16<kForm, decltype(size)::value>(panel, blocks, rows, row, output, column, valid);
  });
}

}  // namespace
}  // namespace assay::cpu
