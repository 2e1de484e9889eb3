// What the linear kernels share: the last steps of a block and the store of a tile.
//
// Every output is one chain over the activations' stored blocks, in order (ops.h):
//   total = fma(integer dot, weight scale * activation scale, total)
//   total = fma(weight minimum, activation sum, total)          (nibble formats)
// Integer dots are exact, so the decode and prefill kernels may form them in
// any way and still agree bit for bit.
#pragma once

#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

inline __m256 add_scaled(__m256i dot, __m256 weight_scale, __m256 row_scale, __m256 total) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(weight_scale, row_scale), total);
}

// Eight outputs of one row, of which the first `valid` exist.
inline void store8(const Output& output, int row, int column, int valid, __m256 value) {
  float* out = output.out + static_cast<size_t>(row) * output.stride + column;
  if (valid >= 8) {
    _mm256_storeu_ps(out, output.add ? _mm256_add_ps(_mm256_loadu_ps(out), value) : value);
    return;
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, value);
  for (int lane = 0; lane < valid; ++lane) out[lane] = output.add ? out[lane] + lanes[lane] : lanes[lane];
}

inline const uint8_t* panel_at(const Packed& matrix, int index) {
  return matrix.base + static_cast<size_t>(index / matrix.group) * matrix.group_bytes +
         static_cast<size_t>(index % matrix.group) * matrix.panel_bytes;
}

inline int rows_at(const Packed& matrix, int index) {
  const int left = matrix.rows - index * kPanelRows;
  return left < kPanelRows ? left : kPanelRows;
}

}  // namespace
}  // namespace assay::cpu
