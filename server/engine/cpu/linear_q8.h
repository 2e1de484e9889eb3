// Q8_0 panels times rows. Bytes are signed on both sides, so |w| meets x with w's
// sign: w may be -128, whose negation is no byte, x never is. Two products stay
// within int16 (2 * 128 * 127 = 32512).
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr size_t kQ8Block = 544;
constexpr int kQ8Prefetch = 2048;  // bytes ahead in the stream

inline void prefetch_q8(const uint8_t* at) {
  for (size_t line = 0; line < kQ8Block; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T0);
  }
}

// One column block of kGroups * 8 weight rows times one block of each of kRows rows, `stride` blocks apart.
template <int kRows, int kGroups>
inline void q8_block(const uint8_t* weights, int group, const int8_t* q, const float* scale, size_t stride,
                     __m256 (&total)[kRows][kGroups]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i dot[kRows][kGroups] = {};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 32 + 64 * v + 32 * (group + g)));
      const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const __m256i x = broadcast4(q + static_cast<size_t>(row) * stride * kBlock + 4 * v);
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
        dot[row][g] = _mm256_add_epi32(dot[row][g], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
    const __m256 row_scale = _mm256_broadcast_ss(scale + static_cast<size_t>(row) * stride);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      total[row][g] = add_scaled(dot[row][g], load_half(weights + 16 * (group + g)), row_scale, total[row][g]);
    }
  }
}

// `kRows` rows from `first` on; eight weight rows at a time when kRows > 1, all 16 at once for one row.
template <int kRows, int kGroups>
void q8_tile(const uint8_t* panel, int group, const Packed& matrix, const Rows& rows, int first, const Output& output,
             int column, int valid) {
  const int blocks = matrix.columns / kBlock;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const size_t start = static_cast<size_t>(first) * stored;
  const int8_t* q = rows.q + start * kBlock;
  const float* scale = rows.scale + start;
  __m256 total[kRows][kGroups] = {};
  for (int block = 0; block < blocks; ++block) {
    const uint8_t* weights = panel + static_cast<size_t>(block) * kQ8Block;
    if (kRows == 1) prefetch_q8(weights + kQ8Prefetch);
    q8_block<kRows, kGroups>(weights, group, q + block * kBlock, scale + block, stored, total);
  }
  const int refined = rows.refinements;
  for (int row = 0; row < kRows; ++row) {
    __m256 own[1][kGroups];
    for (int g = 0; g < kGroups; ++g) own[0][g] = total[row][g];
    for (int extra = 0; extra < refined; ++extra) {
      const uint8_t* weights = panel + static_cast<size_t>(rows.refined[(first + row) * refined + extra]) * kQ8Block;
      const size_t at = static_cast<size_t>(row) * stored + static_cast<size_t>(blocks + extra);
      // The weights are near by now; memory goes on with the next panel meanwhile.
      if (kRows == 1) prefetch_q8(panel + static_cast<size_t>(blocks + extra) * kQ8Block + kQ8Prefetch);
      q8_block<1, kGroups>(weights, group, q + at * kBlock, scale + at, stored, own);
    }
    for (int g = 0; g < kGroups; ++g) {
      store8(output, first + row, column + 8 * (group + g), valid - 8 * (group + g), own[0][g]);
    }
  }
}

inline void q8_panel(const uint8_t* panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                     int valid) {
  if (rows.count == 1) {
    q8_tile<1, 2>(panel, 0, matrix, rows, 0, output, column, valid);
    return;
  }
  for (int group = 0; group < 2; ++group) {
    int row = 0;
    for (; row + 4 <= rows.count; row += 4) q8_tile<4, 1>(panel, group, matrix, rows, row, output, column, valid);
    for (; row + 2 <= rows.count; row += 2) q8_tile<2, 1>(panel, group, matrix, rows, row, output, column, valid);
    if (row < rows.count) q8_tile<1, 1>(panel, group, matrix, rows, row, output, column, valid);
  }
}

}  // namespace
}  // namespace assay::cpu
