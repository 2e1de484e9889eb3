// F32, F16 and BF16 panels times rows: one fused chain over the columns, in order.
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

// Sixteen weights of one column.
template <Form kForm>
inline __m512 load_weights16(const uint8_t* at) {
  if constexpr (kForm == Form::f32) return _mm512_loadu_ps(at);
  if constexpr (kForm == Form::f16) return load_halves16(at);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <int kRows, Form kForm>
void float_rows16(const uint8_t* panel, const Packed& matrix, const Rows& rows, int first, const Output& output,
                  int column, int valid) {
  const size_t columns = static_cast<size_t>(matrix.columns);
  const float* x = rows.x + static_cast<size_t>(first) * columns;
  __m512 total[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) total[row] = _mm512_setzero_ps();
  for (size_t k = 0; k < columns; ++k) {
    const __m512 weight = load_weights16<kForm>(panel + k * kPanelRows * (kForm == Form::f32 ? 4 : 2));
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      const __m512 value = _mm512_set1_ps(x[static_cast<size_t>(row) * columns + k]);
      total[row] = _mm512_fmadd_ps(weight, value, total[row]);
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) store16(output, first + row, column, valid, total[row]);
}

template <Form kForm>
void float_panel16(const uint8_t* panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                   int valid) {
  each_tile<12, 8, 4, 2, 1>(rows.count, [&](auto size, int row) {
    float_rows16<decltype(size)::value, kForm>(panel, matrix, rows, row, output, column, valid);
  });
}

}  // namespace
}  // namespace assay::cpu
