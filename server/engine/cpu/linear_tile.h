// What the linear kernels share: the steps of the chains (ops.h) and the store of a tile.
//
// Integer dots are exact, so the decode and prefill kernels may form them in any
// way and still agree bit for bit; everything in floats is written here, once.
#pragma once

#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

// One row of activations.
struct Row {
  Row(const Rows& rows, int blocks, int index) {
    const size_t at = static_cast<size_t>(index) * static_cast<size_t>(blocks + rows.refinements);
    q = rows.q + at * kBlock;
    residual = q + static_cast<size_t>(blocks) * kBlock;
    scale = rows.scale + at;
    residual_scale = scale + blocks;
    sum = rows.sum + at;
    refined = rows.refined + static_cast<size_t>(index) * static_cast<size_t>(rows.refinements);
  }

  const int8_t* q;
  const int8_t* residual;
  const float* scale;
  const float* residual_scale;
  const float* sum;
  const int32_t* refined;
};

// Adds to a sum that stays in its register: left to itself the compiler adds in a tree, for which there
// are too few registers, and spills.
inline void accumulate16(__m256i& sum, __m256i value) {
  sum = _mm256_add_epi16(sum, value);
  __asm__("" : "+x"(sum));
}

inline void accumulate32(__m256i& sum, __m256i value) {
  sum = _mm256_add_epi32(sum, value);
  __asm__("" : "+x"(sum));
}

// dot + residual / 256: exact in integers, rounded once.
inline __m256 joined(__m256i dot, __m256i residual) {
  const __m256i whole = _mm256_add_epi32(_mm256_slli_epi32(dot, 8), residual);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(whole), _mm256_set1_ps(0x1p-8f));
}

// A step of a chain: of a form with minima, of one without (and of every form's residuals), of one with two scales.
inline __m256 add_block(__m256 dot, __m256 weight_scale, __m256 minimum, float sum, float scale, __m256 total) {
  const __m256 offset = _mm256_mul_ps(minimum, _mm256_set1_ps(sum));
  return _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_fmadd_ps(weight_scale, dot, offset), total);
}

inline __m256 add_block(__m256 dot, __m256 weight_scale, float scale, __m256 total) {
  return _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_mul_ps(weight_scale, dot), total);
}

inline __m256 add_halves(__m256 low, __m256 high, __m256 low_scale, __m256 high_scale, float scale, __m256 total) {
  const __m256 product = _mm256_fmadd_ps(low_scale, low, _mm256_mul_ps(high_scale, high));
  return _mm256_fmadd_ps(_mm256_set1_ps(scale), product, total);
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

inline void store16(const Output& output, int row, int column, int valid, const __m256 (&value)[2]) {
  store8(output, row, column, valid, value[0]);
  store8(output, row, column + 8, valid - 8, value[1]);
}

inline const uint8_t* panel_at(const Packed& matrix, int index) {
  return matrix.base + static_cast<size_t>(index / matrix.group) * matrix.group_bytes +
         static_cast<size_t>(index % matrix.group) * matrix.panel_bytes;
}

inline int rows_at(const Packed& matrix, int index) {
  const int left = matrix.rows - index * kPanelRows;
  return left < kPanelRows ? left : kPanelRows;
}

// Fetches kBytes. What is read once on its way from memory (kOnce) need not stay in the outer caches, which
// saves moving it there.
template <int kBytes, bool kOnce>
inline void prefetch(const uint8_t* at) {
  for (int line = 0; line < kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), kOnce ? _MM_HINT_NTA : _MM_HINT_T0);
  }
}

}  // namespace
}  // namespace assay::cpu
