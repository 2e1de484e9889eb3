// qlinear, decode form: one or two rows against packed panels, at the speed of memory.
//
// A thread walks its panels front to back: one stream, prefetched ahead.
#include "linear_float.h"
#include "linear_q8.h"

namespace assay::cpu {
namespace {

constexpr int kPrefetch = 2048;  // bytes ahead in the stream

// One column block of 16 weight rows times one block of each of kRows rows.
// Nibbles are at most 15 and bytes at most 128 in size, so the eight sums of
// two products of a lane stay within int16 (8 * 2 * 15 * 128 = 30720).
template <bool kMinimum, int kRows>
inline void nibble_block(const uint8_t* weights, const int8_t* const* q, const float* const* scale,
                         const float* const* sum, __m256 (&total)[kRows][2]) {
  constexpr int kHeader = kMinimum ? 64 : 32;
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[kRows][2] = {};
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + kHeader + 64 * v + 32 * g));
      const __m256i low = _mm256_and_si256(w, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
#pragma GCC unroll 2
      for (int row = 0; row < kRows; ++row) {
        const __m256i both = _mm256_add_epi16(_mm256_maddubs_epi16(low, broadcast4(q[row] + 4 * v)),
                                              _mm256_maddubs_epi16(high, broadcast4(q[row] + 16 + 4 * v)));
        pairs[row][g] = _mm256_add_epi16(pairs[row][g], both);
      }
    }
  }
#pragma GCC unroll 2
  for (int row = 0; row < kRows; ++row) {
    const __m256 row_scale = _mm256_broadcast_ss(scale[row]);
    const __m256 row_sum = _mm256_broadcast_ss(sum[row]);
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const __m256 weight_scale = load_half(weights + 16 * g);
      const __m256 minimum =
          kMinimum ? load_half(weights + 32 + 16 * g) : _mm256_mul_ps(weight_scale, _mm256_set1_ps(-8.0f));
      total[row][g] = add_scaled(_mm256_madd_epi16(pairs[row][g], ones), weight_scale, row_scale, total[row][g]);
      total[row][g] = _mm256_fmadd_ps(minimum, row_sum, total[row][g]);
    }
  }
}

template <bool kMinimum, int kRows>
void nibble_tile(const uint8_t* panel, const Packed& matrix, const Rows& rows, int first, const Output& output,
                 int column, int valid) {
  constexpr int kBytes = kMinimum ? 320 : 288;
  const int blocks = matrix.columns / kBlock;
  const int refined = rows.refinements;
  const int stored = blocks + refined;
  const int8_t* q[kRows];
  const float* scale[kRows];
  const float* sum[kRows];
  for (int row = 0; row < kRows; ++row) {
    const size_t at = static_cast<size_t>(first + row) * stored;
    q[row] = rows.q + at * kBlock;
    scale[row] = rows.scale + at;
    sum[row] = rows.sum + at;
  }
  __m256 total[kRows][2] = {};
  const uint8_t* weights = panel;
  for (int block = 0; block < blocks; ++block, weights += kBytes) {
    for (int line = 0; line < kBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(weights + kPrefetch + line), _MM_HINT_T0);
    }
    nibble_block<kMinimum, kRows>(weights, q, scale, sum, total);
    for (int row = 0; row < kRows; ++row) q[row] += kBlock, ++scale[row], ++sum[row];
  }
  for (int row = 0; row < kRows; ++row) {
    __m256 own[1][2] = {{total[row][0], total[row][1]}};
    for (int extra = 0; extra < refined; ++extra, q[row] += kBlock, ++scale[row], ++sum[row]) {
      const uint8_t* at = panel + static_cast<size_t>(rows.refined[(first + row) * refined + extra]) * kBytes;
      nibble_block<kMinimum, 1>(at, q + row, scale + row, sum + row, own);
    }
    store8(output, first + row, column, valid, own[0][0]);
    store8(output, first + row, column + 8, valid - 8, own[0][1]);
  }
}

template <bool kMinimum>
void nibble_panel(const uint8_t* panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                  int valid) {
  int row = 0;
  for (; row + 2 <= rows.count; row += 2) nibble_tile<kMinimum, 2>(panel, matrix, rows, row, output, column, valid);
  if (row < rows.count) nibble_tile<kMinimum, 1>(panel, matrix, rows, row, output, column, valid);
}

}  // namespace

void qlinear_decode(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output) {
  for (int index = begin; index < end; ++index) {
    const uint8_t* panel = panel_at(matrix, index);
    const int column = (index - begin) * kPanelRows;
    const int valid = rows_at(matrix, index);
    switch (matrix.type) {
      case TensorType::q4_1:
        nibble_panel<true>(panel, matrix, rows, output, column, valid);
        break;
      case TensorType::q4_0:
        nibble_panel<false>(panel, matrix, rows, output, column, valid);
        break;
      case TensorType::q8_0:
        q8_panel(panel, matrix, rows, output, column, valid);
        break;
      case TensorType::f16:
        float_panel<true>(panel, matrix, rows, output, column, valid);
        break;
      case TensorType::f32:
        float_panel<false>(panel, matrix, rows, output, column, valid);
        break;
    }
  }
}

}  // namespace assay::cpu
