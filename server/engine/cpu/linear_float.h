// F32 and F16 panels times rows: one fused chain over the columns, in order.
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

template <int kRows, bool kHalf>
void float_tile(const uint8_t* panel, const Packed& matrix, const Rows& rows, int first, const Output& output,
                int column, int valid) {
  __m256 total[kRows][2] = {};
  const float* x = rows.x + static_cast<size_t>(first) * matrix.columns;
  for (int k = 0; k < matrix.columns; ++k) {
    const uint8_t* at = panel + static_cast<size_t>(k) * (kHalf ? 32 : 64);
    const __m256 low = kHalf ? load_half(at) : _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    const __m256 high = kHalf ? load_half(at + 16) : _mm256_loadu_ps(reinterpret_cast<const float*>(at + 32));
    for (int row = 0; row < kRows; ++row) {
      const __m256 value = _mm256_broadcast_ss(x + static_cast<size_t>(row) * matrix.columns + k);
      total[row][0] = _mm256_fmadd_ps(low, value, total[row][0]);
      total[row][1] = _mm256_fmadd_ps(high, value, total[row][1]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    store8(output, first + row, column, valid, total[row][0]);
    store8(output, first + row, column + 8, valid - 8, total[row][1]);
  }
}

template <bool kHalf>
void float_panel(const uint8_t* panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                 int valid) {
  int row = 0;
  for (; row + 4 <= rows.count; row += 4) float_tile<4, kHalf>(panel, matrix, rows, row, output, column, valid);
  for (; row < rows.count; ++row) float_tile<1, kHalf>(panel, matrix, rows, row, output, column, valid);
}

}  // namespace
}  // namespace assay::cpu
