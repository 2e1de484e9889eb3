// Six-bit panels, packed, times up to eight rows: both forms of qlinear.
//
// Weights stay unsigned, with 32 added; a sum of products begins at less 32 times
// the activations' own, so that it ends exact.
#pragma once

#include "../linear_six.h"
#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr int kSixAhead = 5632;  // bytes ahead in the stream

template <Form kForm>
constexpr int kSixParts = kForm == Form::halved_sixes ? 2 : 1;  // sums of a block

// Less 32 times the sums of a block of activations.
template <Form kForm>
inline void six_offsets16(const int8_t* x, __m512i (&sum)[kSixParts<kForm>]) {
  const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(32), block);
  fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
  fours = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1)));
  const __m128i low = _mm256_castsi256_si128(fours);
  const __m128i high = _mm256_extracti128_si256(fours, 1);
  if constexpr (kSixParts<kForm> == 2) {
    sum[0] = _mm512_broadcast_i32x4(low);
    sum[1] = _mm512_broadcast_i32x4(high);
  } else {
    sum[0] = _mm512_broadcast_i32x4(_mm_add_epi32(low, high));
  }
}

// A block of 16 weight rows times one block of each of kStreams streams, `at(stream)`.
template <Form kForm, int kStreams, typename At>
inline void six_dots16(const uint8_t* block, const At& at, __m512i (&dot)[kStreams][kSixParts<kForm>]) {
  constexpr int kHigh = kSixParts<kForm> - 1;  // where columns 16 to 31 are summed
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i field = _mm512_set1_epi8(48);
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) six_offsets16<kForm>(at(s), dot[s]);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512i pairs = load64(block + 128 + 64 * v);
    const __m512i bits = load64(block + 384 + v / 2 * 64);
    const __m512i low_bits = v % 2 == 0 ? _mm512_slli_epi16(bits, 4) : bits;
    const __m512i high_bits = v % 2 == 0 ? _mm512_slli_epi16(bits, 2) : _mm512_srli_epi16(bits, 2);
    const __m512i low = _mm512_or_si512(_mm512_and_si512(pairs, nibble), _mm512_and_si512(low_bits, field));
    const __m512i high = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(pairs, 4), nibble),
                                         _mm512_and_si512(high_bits, field));
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) dot[s][0] = _mm512_dpbusd_epi32(dot[s][0], low, spread4(at(s) + 4 * v));
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      dot[s][kHigh] = _mm512_dpbusd_epi32(dot[s][kHigh], high, spread4(at(s) + 16 + 4 * v));
    }
  }
}

// A block's dots as floats, joined with 1 / 256 of the residual's where `residual` is given.
template <int kParts>
inline void six_sums16(const __m512i (&dot)[kParts], const __m512i* residual, __m512 (&sum)[kParts]) {
  for (int part = 0; part < kParts; ++part) {
    if (residual == nullptr) {
      sum[part] = _mm512_cvtepi32_ps(dot[part]);
    } else {
      const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(dot[part], 8), residual[part]);
      sum[part] = _mm512_mul_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(0x1p-8f));
    }
  }
}

template <Form kForm, int kRows, bool kAllRefined>
void six_rows16(const uint8_t* panel, int blocks, const Rows& rows, int first, const Output& output, int column,
                int valid) {
  constexpr int kParts = kSixParts<kForm>;
  constexpr int kStreams = kAllRefined ? 2 * kRows : kRows;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const Row start(rows, blocks, first);
  __m512 total[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) total[row] = _mm512_setzero_ps();
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* at = panel + b * kSixBlock;
    prefetch<kSixBlock, kRows == 1>(at + kSixAhead);
    const auto stream = [&](int s) {
      const size_t here = static_cast<size_t>(s % kRows) * stored + static_cast<size_t>(s / kRows * blocks + b);
      return start.q + here * kBlock;
    };
    __m512i dot[kStreams][kParts];
    six_dots16<kForm, kStreams>(at, stream, dot);
    const __m512 scale = _mm512_loadu_ps(at);
    const __m512 second = _mm512_loadu_ps(at + 64);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const size_t here = static_cast<size_t>(row) * stored + static_cast<size_t>(b);
      __m512 sum[kParts];
      six_sums16<kParts>(dot[row], kAllRefined ? dot[kStreams - kRows + row] : nullptr, sum);
      if constexpr (kParts == 2) {
        total[row] = add_halves(sum[0], sum[1], scale, second, start.scale[here], total[row]);
      } else {
        total[row] = add_block(sum[0], scale, second, start.sum[here], start.scale[here], total[row]);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    if constexpr (!kAllRefined) {
      const Row own(rows, blocks, first + row);
      __m512 residual = _mm512_setzero_ps();
      for (int extra = 0; extra < rows.refinements; ++extra) {
        const uint8_t* at = panel + own.refined[extra] * kSixBlock;
        __m512i dot[1][kParts];
        six_dots16<kForm, 1>(at, [&](int) { return own.residual + extra * kBlock; }, dot);
        __m512 sum[kParts];
        six_sums16<kParts>(dot[0], nullptr, sum);
        const __m512 scale = _mm512_loadu_ps(at);
        if constexpr (kParts == 2) {
          residual = add_halves(sum[0], sum[1], scale, _mm512_loadu_ps(at + 64), own.residual_scale[extra], residual);
        } else {
          residual = add_block(sum[0], scale, own.residual_scale[extra], residual);
        }
      }
      total[row] = _mm512_add_ps(total[row], residual);
    }
    store16(output, first + row, column, valid, total[row]);
  }
}

template <Form kForm>
void six_panel16(const uint8_t* panel, int blocks, const Rows& rows, const Output& output, int column, int valid) {
  if (rows.refinements == blocks) {
    each_tile<4, 2, 1>(rows.count, [&](auto size, int row) {
      six_rows16<kForm, decltype(size)::value, true>(panel, blocks, rows, row, output, column, valid);
    });
    return;
  }
  each_tile<8, 4, 2, 1>(rows.count, [&](auto size, int row) {
    six_rows16<kForm, decltype(size)::value, false>(panel, blocks, rows, row, output, column, valid);
  });
}

}  // namespace
}  // namespace assay::cpu
