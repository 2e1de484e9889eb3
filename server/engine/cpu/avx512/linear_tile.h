// What this room's linear kernels share: the steps of the chains (ops.h), 16 outputs at a time.
//
// Weights are unsigned bytes in a register, four columns of 16 rows, and meet
// four activations of one row that the instruction reads and spreads itself:
// 64 products an instruction, exact in 32 bits. A row of activations keeps its
// integer sums for one block and its floats for the panel.
#pragma once

#include <type_traits>

#include "../linear_tile.h"
#include "avx512.h"

namespace assay::cpu {
namespace {

inline __m512 load_halves16(const uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

inline __m512i load64(const uint8_t* bytes) { return _mm512_loadu_si512(bytes); }

// The same of bytes at a multiple of 32 only: two halves, since a load across two lines waits for both.
inline __m512i load32x2(const uint8_t* bytes) {
  const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low),
                            _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + 32)), 1);
}

// Four activations in every 32-bit lane; the compiler makes it an operand.
inline __m512i spread4(const int8_t* bytes) {
  int32_t four;
  __builtin_memcpy(&four, bytes, sizeof four);
  return _mm512_set1_epi32(four);
}

inline __m512 add_block(__m512 dot, __m512 weight_scale, __m512 minimum, float sum, float scale, __m512 total) {
  const __m512 offset = _mm512_mul_ps(minimum, _mm512_set1_ps(sum));
  return _mm512_fmadd_ps(_mm512_fmadd_ps(weight_scale, dot, offset), _mm512_set1_ps(scale), total);
}

inline __m512 add_block(__m512 dot, __m512 weight_scale, float scale, __m512 total) {
  return _mm512_fmadd_ps(_mm512_mul_ps(weight_scale, dot), _mm512_set1_ps(scale), total);
}

inline __m512 add_halves(__m512 low, __m512 high, __m512 low_scale, __m512 high_scale, float scale, __m512 total) {
  const __m512 product = _mm512_fmadd_ps(low_scale, low, _mm512_mul_ps(high_scale, high));
  return _mm512_fmadd_ps(product, _mm512_set1_ps(scale), total);
}

// 16 outputs of one row, of which the first `valid` exist.
inline void store16(const Output& output, int row, int column, int valid, __m512 value) {
  float* out = output.out + static_cast<size_t>(row) * output.stride + column;
  const __mmask16 kept = valid >= 16 ? 0xffff : static_cast<__mmask16>((1u << valid) - 1u);
  if (output.add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(kept, out), value);
  _mm512_mask_storeu_ps(out, kept, value);
}

// Calls tile<n>(first) for rows in tiles of the sizes given, the largest first.
template <int kSize, int... kSmaller, typename Tile>
inline void each_tile(int count, const Tile& tile, int row = 0) {
  for (; count - row >= kSize; row += kSize) tile(std::integral_constant<int, kSize>{}, row);
  if constexpr (sizeof...(kSmaller) > 0) {
    if (row < count) each_tile<kSmaller...>(count, tile, row);
  }
}

}  // namespace
}  // namespace assay::cpu
