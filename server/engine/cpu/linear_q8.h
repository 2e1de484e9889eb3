// Q8_0 panels times rows.
//
// Bytes are signed on both sides, so |w| meets x with w's sign: w may be -128,
// whose negation is no byte, x never is. Two products stay within int16
// (2 * 128 * 127 = 32512). Where every block is refined, x and its residual are
// one number of 16 bits, and so are the weights.
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr int kQ8Block = 544;
constexpr int kQ8Prefetch = 6528;  // bytes ahead in the stream

// One column block of kGroups * 8 weight rows times one block of each of kRows rows, `stride` bytes apart.
template <int kRows, int kGroups>
inline void q8_dots(const uint8_t* weights, const int8_t* q, size_t stride, __m256i (&dot)[kRows][kGroups]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v + 32 * g));
      const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const __m256i x = broadcast4(q + static_cast<size_t>(row) * stride + 4 * v);
        const __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w)), ones);
        if (v == 0) {
          dot[row][g] = products;
        } else {
          accumulate32(dot[row][g], products);
        }
      }
    }
  }
}

// A block and its residual as 256 * q + residual: in every 32 bits columns 0 and 2 of four, then columns 1 and 3.
struct Wide {
  void set(const int8_t* q, const int8_t* residual) {
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(residual));
    const __m256i upper = _mm256_set1_epi16(static_cast<short>(0xff00));
    _mm256_store_si256(reinterpret_cast<__m256i*>(even),
                       _mm256_add_epi16(_mm256_slli_epi16(high, 8), _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(odd),
                       _mm256_add_epi16(_mm256_and_si256(high, upper), _mm256_srai_epi16(low, 8)));
  }

  alignas(32) int8_t even[32];
  alignas(32) int8_t odd[32];
};

// The same with both parts of the activations: sums of 256 * dot(q) + dot(residual).
template <int kRows, int kGroups>
inline void q8_wide_dots(const uint8_t* weights, const Wide* wide, __m256i (&dot)[kRows][kGroups]) {
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v + 32 * g));
      const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
      const __m256i odd = _mm256_srai_epi16(w, 8);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(even, broadcast4(wide[row].even + 4 * v)),
                                                  _mm256_madd_epi16(odd, broadcast4(wide[row].odd + 4 * v)));
        if (v == 0) {
          dot[row][g] = products;
        } else {
          accumulate32(dot[row][g], products);
        }
      }
    }
  }
}

// `kRows` rows from `first` on and kGroups * 8 weight rows from `group` * 8 on.
template <int kRows, int kGroups>
void q8_tile(const uint8_t* panel, int group, int blocks, const Rows& rows, int first, const Output& output, int column,
             int valid) {
  const bool all_refined = rows.refinements == blocks;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const Row start(rows, blocks, first);
  __m256 total[kRows][kGroups] = {};
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* at = panel + b * kQ8Block;
    prefetch<kQ8Block, kRows == 1>(at + kQ8Prefetch);
    const uint8_t* weights = at + 32 + 32 * group;
    __m256i dot[kRows][kGroups];
    __m256 unit = _mm256_set1_ps(1.0f);
    if (all_refined) {
      Wide wide[kRows];
      for (int row = 0; row < kRows; ++row) {
        const size_t at = (static_cast<size_t>(row) * stored + static_cast<size_t>(b)) * kBlock;
        wide[row].set(start.q + at, start.residual + at);
        __asm__("" : "+m"(wide[row]));  // or the compiler shifts each part out of the register it was stored from
      }
      q8_wide_dots<kRows, kGroups>(weights, wide, dot);
      unit = _mm256_set1_ps(0x1p-8f);
    } else {
      q8_dots<kRows, kGroups>(weights, start.q + b * kBlock, stored * kBlock, dot);
    }
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m256 scale = _mm256_mul_ps(load_half(at + 16 * (group + g)), unit);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        total[row][g] = add_block(_mm256_cvtepi32_ps(dot[row][g]), scale,
                                  start.scale[static_cast<size_t>(row) * stored + b], total[row][g]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    const Row own(rows, blocks, first + row);
    __m256 residual[kGroups] = {};
    for (int extra = 0; !all_refined && extra < rows.refinements; ++extra) {
      const uint8_t* at = panel + own.refined[extra] * kQ8Block;
      __m256i dot[1][kGroups];
      q8_dots<1, kGroups>(at + 32 + 32 * group, own.residual + extra * kBlock, 0, dot);
      for (int g = 0; g < kGroups; ++g) {
        residual[g] = add_block(_mm256_cvtepi32_ps(dot[0][g]), load_half(at + 16 * (group + g)),
                                own.residual_scale[extra], residual[g]);
      }
    }
    for (int g = 0; g < kGroups; ++g) {
      const __m256 value = all_refined ? total[row][g] : _mm256_add_ps(total[row][g], residual[g]);
      store8(output, first + row, column + 8 * (group + g), valid - 8 * (group + g), value);
    }
  }
}

inline void q8_panel(const uint8_t* panel, int blocks, const Rows& rows, const Output& output, int column, int valid) {
  if (rows.count == 1) {
    q8_tile<1, 2>(panel, 0, blocks, rows, 0, output, column, valid);
    return;
  }
  for (int group = 0; group < 2; ++group) {
    int row = 0;
    for (; row + 4 <= rows.count; row += 4) q8_tile<4, 1>(panel, group, blocks, rows, row, output, column, valid);
    for (; row + 2 <= rows.count; row += 2) q8_tile<2, 1>(panel, group, blocks, rows, row, output, column, valid);
    if (row < rows.count) q8_tile<1, 1>(panel, group, blocks, rows, row, output, column, valid);
  }
}

}  // namespace
}  // namespace assay::cpu
