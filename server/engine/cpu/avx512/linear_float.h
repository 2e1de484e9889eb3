// F32 and F16 panels times rows: one fused chain over the columns, in order.
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

template <int kRows, bool kHalf>
void float_rows16(const uint8_t* panel, const Packed& matrix, const Rows& rows, int first, const Output& output,
                  int column, int valid) {
  const size_t columns = static_cast<size_t>(matrix.columns);
  const float* x = rows.x + static_cast<size_t>(first) * columns;
  __m512 total[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) total[row] = _mm512_setzero_ps();
  for (size_t k = 0; k < columns; ++k) {
    const uint8_t* at = panel + k * (kHalf ? 32 : 64);
    const __m512 weight = kHalf ? load_halves16(at) : _mm512_loadu_ps(reinterpret_cast<const float*>(at));
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      const __m512 value = _mm512_set1_ps(x[static_cast<size_t>(row) * columns + k]);
      total[row] = _mm512_fmadd_ps(weight, value, total[row]);
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) store16(output, first + row, column, valid, total[row]);
}

template <bool kHalf>
void float_panel16(const uint8_t* panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                   int valid) {
  each_tile<12, 8, 4, 2, 1>(rows.count, [&](auto size, int row) {
    float_rows16<decltype(size)::value, kHalf>(panel, matrix, rows, row, output, column, valid);
  });
}

}  // namespace
}  // namespace assay::cpu
