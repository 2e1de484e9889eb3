// F32, F16 and BF16 panels times rows: one fused chain over the columns, in order.
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

// Eight weights of one column.
template <Form kForm>
inline __m256 load_weights8(const uint8_t* at) {
  return kForm == Form::f32 ? load_floats(at) : kForm == Form::f16 ? load_half(at) : load_bfloat(at);
}

template <int kRows, Form kForm>
void float_tile(const uint8_t* panel, const Packed& matrix, const Rows& rows, int first, const Output& output,
                int column, int valid) {
  constexpr int kBytes = kForm == Form::f32 ? 4 : 2;
  __m256 total[kRows][2] = {};
  const float* x = rows.x + static_cast<size_t>(first) * matrix.columns;
  for (int k = 0; k < matrix.columns; ++k) {
    const uint8_t* at = panel + static_cast<size_t>(k) * kPanelRows * kBytes;
    const __m256 low = load_weights8<kForm>(at);
    const __m256 high = load_weights8<kForm>(at + 8 * kBytes);
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

template <Form kForm>
void float_panel(const uint8_t* panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                 int valid) {
  int row = 0;
  for (; row + 4 <= rows.count; row += 4) float_tile<4, kForm>(panel, matrix, rows, row, output, column, valid);
  for (; row < rows.count; ++row) float_tile<1, kForm>(panel, matrix, rows, row, output, column, valid);
}

}  // namespace
}  // namespace assay::cpu
