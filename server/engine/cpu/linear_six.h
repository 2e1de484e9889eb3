// Six-bit panels times rows: what both forms of qlinear do.
//
// Integers are at most 32 in size and signed, so |w| meets x with w's sign, and
// the four sums of two products of half a block stay within int16 (4 * 2 * 32 *
// 127 = 32512). A panel is read as it is packed, or unpacked to signed bytes
// once where many rows follow: [block][8 column quads][2 groups][32], then floats
// [block][both scales, or scale and minimum, of 16].
#pragma once

#include "linear_tile.h"

namespace assay::cpu {
namespace {

constexpr int kSixBlock = 512;
constexpr int kSixPrefetch = 6144;  // bytes ahead in the stream

// Signed weights of rows 8 g to 8 g + 7: columns 4 v to 4 v + 3, and the same plus 16.
struct SixColumns {
  __m256i low, high;
};

class PackedSixes {
 public:
  explicit PackedSixes(const uint8_t* panel) : panel_(panel) {}

  template <bool kOnce>
  void prefetch_block(int block) const {
    prefetch<kSixBlock, kOnce>(panel_ + block * kSixBlock + kSixPrefetch);
  }

  SixColumns columns(int block, int g, int v) const {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i field = _mm256_set1_epi8(48);
    const __m256i offset = _mm256_set1_epi8(32);
    const uint8_t* at = panel_ + block * kSixBlock + 32 * g;
    const __m256i pairs = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 128 + 64 * v));
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 384 + v / 2 * 64));
    const __m256i low_bits = v % 2 == 0 ? _mm256_slli_epi16(bits, 4) : bits;
    const __m256i high_bits = v % 2 == 0 ? _mm256_slli_epi16(bits, 2) : _mm256_srli_epi16(bits, 2);
    const __m256i low = _mm256_or_si256(_mm256_and_si256(pairs, nibble), _mm256_and_si256(low_bits, field));
    const __m256i high = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble),
                                         _mm256_and_si256(high_bits, field));
    return {_mm256_sub_epi8(low, offset), _mm256_sub_epi8(high, offset)};
  }

  __m256 first(int block, int g) const { return load_floats(panel_ + block * kSixBlock + 32 * g); }
  __m256 second(int block, int g) const { return load_floats(panel_ + block * kSixBlock + 64 + 32 * g); }

 private:
  const uint8_t* panel_;
};

class UnpackedSixes {
 public:
  UnpackedSixes(const uint8_t* panel, int blocks, uint8_t* scratch)
      : bytes_(scratch), floats_(scratch + static_cast<size_t>(blocks) * 512) {
    const PackedSixes packed(panel);
    for (int block = 0; block < blocks; ++block) {
      packed.prefetch_block<true>(block);
      uint8_t* out = scratch + block * 512;
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        for (int g = 0; g < 2; ++g) {
          const SixColumns weights = packed.columns(block, g, v);
          _mm256_store_si256(reinterpret_cast<__m256i*>(out + 64 * v + 32 * g), weights.low);
          _mm256_store_si256(reinterpret_cast<__m256i*>(out + 256 + 64 * v + 32 * g), weights.high);
        }
      }
      __builtin_memcpy(scratch + static_cast<size_t>(blocks) * 512 + block * 128, panel + block * kSixBlock, 128);
    }
  }

  template <bool>
  void prefetch_block(int) const {}

  SixColumns columns(int block, int g, int v) const {
    const uint8_t* at = bytes_ + block * 512 + 64 * v + 32 * g;
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(at)),
            _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 256))};
  }

  __m256 first(int block, int g) const { return load_floats(floats_ + block * 128 + 32 * g); }
  __m256 second(int block, int g) const { return load_floats(floats_ + block * 128 + 64 + 32 * g); }

 private:
  const uint8_t* bytes_;
  const uint8_t* floats_;
};

// The dots of eight weight rows' half blocks with one block of each of kRows rows, `stride` bytes apart.
template <int kRows, typename Panel>
inline void six_dots(const Panel& panel, int block, int g, const int8_t* q, size_t stride, __m256i (&dot)[kRows][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[kRows][2];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const SixColumns weights = panel.columns(block, g, v);
    const __m256i low = _mm256_abs_epi8(weights.low);
    const __m256i high = _mm256_abs_epi8(weights.high);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const int8_t* x = q + static_cast<size_t>(row) * stride + 4 * v;
      const __m256i p0 = _mm256_maddubs_epi16(low, _mm256_sign_epi8(broadcast4(x), weights.low));
      const __m256i p1 = _mm256_maddubs_epi16(high, _mm256_sign_epi8(broadcast4(x + 16), weights.high));
      if (v == 0) {
        pairs[row][0] = p0;
        pairs[row][1] = p1;
      } else {
        accumulate16(pairs[row][0], p0);
        accumulate16(pairs[row][1], p1);
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
    for (int half = 0; half < 2; ++half) dot[row][half] = _mm256_madd_epi16(pairs[row][half], ones);
  }
}

// A block's dots as floats, joined with 1 / 256 of the residual's where there are any; without halves one alone.
template <Form kForm>
struct SixSums {
  explicit SixSums(const __m256i (&dot)[2])
      : low(_mm256_cvtepi32_ps(kHalved ? dot[0] : _mm256_add_epi32(dot[0], dot[1]))),
        high(_mm256_cvtepi32_ps(dot[1])) {}
  SixSums(const __m256i (&dot)[2], const __m256i (&residual)[2])
      : low(kHalved ? joined(dot[0], residual[0])
                    : joined(_mm256_add_epi32(dot[0], dot[1]), _mm256_add_epi32(residual[0], residual[1]))),
        high(joined(dot[1], residual[1])) {}

  static constexpr bool kHalved = kForm == Form::halved_sixes;
  __m256 low, high;
};

// A step of the main chain, and of the residuals'.
template <Form kForm>
inline __m256 add_six(const SixSums<kForm>& sums, __m256 first, __m256 second, float sum, float scale, __m256 total) {
  if constexpr (!SixSums<kForm>::kHalved) return add_block(sums.low, first, second, sum, scale, total);
  return add_halves(sums.low, sums.high, first, second, scale, total);
}

template <Form kForm>
inline __m256 add_six(const SixSums<kForm>& sums, __m256 first, __m256 second, float scale, __m256 total) {
  if constexpr (!SixSums<kForm>::kHalved) return add_block(sums.low, first, scale, total);
  return add_halves(sums.low, sums.high, first, second, scale, total);
}

// `kRows` rows from `first` on and kGroups * 8 weight rows from `group` * 8 on.
template <Form kForm, int kRows, int kGroups, typename Panel>
void six_tile(const Panel& panel, int group, int blocks, const Rows& rows, int first, const Output& output, int column,
              int valid) {
  using Sums = SixSums<kForm>;
  const bool all_refined = rows.refinements == blocks;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const size_t stride = stored * kBlock;
  const Row start(rows, blocks, first);
  __m256 total[kRows][kGroups] = {};
  for (int b = 0; b < blocks; ++b) {
    panel.template prefetch_block<kRows == 1>(b);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m256 scale = panel.first(b, group + g);
      const __m256 second = panel.second(b, group + g);
      __m256i dot[kRows][2];
      six_dots<kRows>(panel, b, group + g, start.q + b * kBlock, stride, dot);
      __m256i residual[kRows][2];
      if (all_refined) six_dots<kRows>(panel, b, group + g, start.residual + b * kBlock, stride, residual);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const size_t at = static_cast<size_t>(row) * stored + static_cast<size_t>(b);
        const Sums sums = all_refined ? Sums(dot[row], residual[row]) : Sums(dot[row]);
        total[row][g] = add_six(sums, scale, second, start.sum[at], start.scale[at], total[row][g]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    const Row own(rows, blocks, first + row);
    for (int g = 0; g < kGroups; ++g) {
      __m256 residual = _mm256_setzero_ps();
      for (int extra = 0; !all_refined && extra < rows.refinements; ++extra) {
        const int b = own.refined[extra];
        __m256i dot[1][2];
        six_dots<1>(panel, b, group + g, own.residual + extra * kBlock, 0, dot);
        residual = add_six(SixSums<kForm>(dot[0]), panel.first(b, group + g), panel.second(b, group + g),
                           own.residual_scale[extra], residual);
      }
      const __m256 value = all_refined ? total[row][g] : _mm256_add_ps(total[row][g], residual);
      store8(output, first + row, column + 8 * (group + g), valid - 8 * (group + g), value);
    }
  }
}

template <Form kForm, typename Panel>
void six_panel(const Panel& panel, int blocks, const Rows& rows, const Output& output, int column, int valid) {
  if (rows.count == 1) return six_tile<kForm, 1, 2>(panel, 0, blocks, rows, 0, output, column, valid);
  for (int group = 0; group < 2; ++group) {
    int row = 0;
    for (; row + 4 <= rows.count; row += 4) {
      six_tile<kForm, 4, 1>(panel, group, blocks, rows, row, output, column, valid);
    }
    for (; row + 2 <= rows.count; row += 2) {
      six_tile<kForm, 2, 1>(panel, group, blocks, rows, row, output, column, valid);
    }
    if (row < rows.count) six_tile<kForm, 1, 1>(panel, group, blocks, rows, row, output, column, valid);
  }
}

}  // namespace
}  // namespace assay::cpu
