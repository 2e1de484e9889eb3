// Q8_0 panels times up to eight rows: both forms of qlinear.
//
// Weights are made unsigned by adding 128, and 128 times the activations' sum
// is taken away again: exactly, in integers where every block is refined, else
// in floats, where both sides are integers or fractions of few bits.
#pragma once

#include "../linear_q8.h"
#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr int kBytesBlock = 544;
constexpr int kBytesAhead = 4352;  // bytes ahead in the stream

// `kStreams` streams of activations against one block; sums begin at `dot`.
template <int kStreams, typename At>
inline void byte_dots16(const uint8_t* weights, const At& at, __m512i (&dot)[kStreams]) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m512i w = _mm512_xor_si512(load32x2(weights + 64 * v), sign);
#pragma GCC unroll 16
    for (int s = 0; s < kStreams; ++s) dot[s] = _mm512_dpbusd_epi32(dot[s], w, spread4(at(s) + 4 * v));
  }
}

template <int kRows, bool kAllRefined>
void byte_rows16(const uint8_t* panel, int blocks, const Rows& rows, int first, const Output& output, int column,
                 int valid) {
  constexpr int kStreams = kAllRefined ? 2 * kRows : kRows;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const Row start(rows, blocks, first);
  __m512 total[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) total[row] = _mm512_setzero_ps();
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* at = panel + b * kBytesBlock;
    prefetch<kBytesBlock, kRows == 1>(at + kBytesAhead);
    const auto stream = [&](int s) {
      const size_t here = static_cast<size_t>(s % kRows) * stored + static_cast<size_t>(s / kRows * blocks + b);
      return start.q + here * kBlock;
    };
    __m512i dot[kStreams];
#pragma GCC unroll 16
    for (int s = 0; s < kStreams; ++s) dot[s] = _mm512_setzero_si512();
    if constexpr (kAllRefined) {
      // 256 * sum is an integer, and so is what 128 adds to a weight makes of it.
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const float sum = start.sum[static_cast<size_t>(row) * stored + b];
        dot[kRows + row] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_set1_ps(sum), _mm512_set1_ps(-32768.0f)));
      }
    }
    byte_dots16<kStreams>(at + 32, stream, dot);
    const __m512 scale = _mm512_mul_ps(load_halves16(at), _mm512_set1_ps(kAllRefined ? 0x1p-8f : 1.0f));
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const size_t here = static_cast<size_t>(row) * stored + b;
      __m512 product;
      if constexpr (kAllRefined) {
        product = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(dot[row], 8), dot[kRows + row]));
      } else {
        product = _mm512_fmadd_ps(_mm512_set1_ps(-128.0f), _mm512_set1_ps(start.sum[here]),
                                  _mm512_cvtepi32_ps(dot[row]));
      }
      total[row] = add_block(product, scale, start.scale[here], total[row]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    if constexpr (!kAllRefined) {
      // What 128 adds to a weight is in the block's sum already.
      const Row own(rows, blocks, first + row);
      __m512 residual = _mm512_setzero_ps();
      for (int extra = 0; extra < rows.refinements; ++extra) {
        const uint8_t* at = panel + own.refined[extra] * kBytesBlock;
        __m512i dot[1] = {_mm512_setzero_si512()};
        byte_dots16<1>(at + 32, [&](int) { return own.residual + extra * kBlock; }, dot);
        residual = add_block(_mm512_cvtepi32_ps(dot[0]), load_halves16(at), own.residual_scale[extra], residual);
      }
      total[row] = _mm512_add_ps(total[row], residual);
    }
    store16(output, first + row, column, valid, total[row]);
  }
}

inline void byte_panel16(const uint8_t* panel, int blocks, const Rows& rows, const Output& output, int column,
                         int valid) {
  if (rows.refinements == blocks) {
    // One row waits for memory, and AVX2's loads of half a line at a time wait less; its steps are the same.
    if (rows.count == 1) return q8_tile<1, 2>(panel, 0, blocks, rows, 0, output, column, valid);
    each_tile<8, 4, 2, 1>(rows.count, [&](auto size, int row) {
      byte_rows16<decltype(size)::value, true>(panel, blocks, rows, row, output, column, valid);
    });
    return;
  }
  each_tile<8, 4, 2, 1>(rows.count, [&](auto size, int row) {
    byte_rows16<decltype(size)::value, false>(panel, blocks, rows, row, output, column, valid);
  });
}

}  // namespace
}  // namespace assay::cpu
