// qlinear, prefill form: a panel is unpacked once and meets every row.
//
// Unpacked: bytes [block][8 column quads][2 groups][32], then floats
// [block][scale 16, minimum 16]. The register tile is three rows by 16 outputs:
// six float and six int16 accumulators, two weight vectors, one activation.
#include "linear_float.h"
#include "linear_q8.h"

namespace assay::cpu {
namespace {

constexpr int kTileRows = 3;

struct Unpacked {
  const uint8_t* weights;
  const float* scales;
};

template <bool kMinimum>
Unpacked unpack(const uint8_t* panel, int blocks, uint8_t* scratch) {
  constexpr int kHeader = kMinimum ? 64 : 32;
  const __m256i mask = _mm256_set1_epi8(15);
  float* scales = reinterpret_cast<float*>(scratch + static_cast<size_t>(blocks) * 512);
  uint8_t* out = scratch;
  for (int block = 0; block < blocks; ++block, panel += kHeader + 256, out += 512) {
    for (int v = 0; v < 4; ++v) {
      for (int g = 0; g < 2; ++g) {
        const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + kHeader + 64 * v + 32 * g));
        uint8_t* at = out + 64 * v + 32 * g;
        _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm256_and_si256(w, mask));
        _mm256_store_si256(reinterpret_cast<__m256i*>(at + 256), _mm256_and_si256(_mm256_srli_epi16(w, 4), mask));
      }
    }
    for (int g = 0; g < 2; ++g) {
      const __m256 scale = load_half(panel + 16 * g);
      const __m256 minimum = kMinimum ? load_half(panel + 32 + 16 * g) : _mm256_mul_ps(scale, _mm256_set1_ps(-8.0f));
      _mm256_store_ps(scales + block * 32 + 8 * g, scale);
      _mm256_store_ps(scales + block * 32 + 16 + 8 * g, minimum);
    }
  }
  return {scratch, scales};
}

// One unpacked column block times one block of each of kRows rows, which lie `stride` blocks apart.
template <int kRows>
inline void tile_block(const uint8_t* weights, const float* scales, const int8_t* q, const float* scale,
                       const float* sum, size_t stride, __m256 (&total)[kRows][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[kRows][2];
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v));
    const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v + 32));
#pragma GCC unroll 3
    for (int row = 0; row < kRows; ++row) {
      const __m256i x = broadcast4(q + static_cast<size_t>(row) * stride * kBlock + 4 * v);
      const __m256i p0 = _mm256_maddubs_epi16(w0, x);
      const __m256i p1 = _mm256_maddubs_epi16(w1, x);
      pairs[row][0] = v == 0 ? p0 : _mm256_add_epi16(pairs[row][0], p0);
      pairs[row][1] = v == 0 ? p1 : _mm256_add_epi16(pairs[row][1], p1);
    }
  }
#pragma GCC unroll 3
  for (int row = 0; row < kRows; ++row) {
    const __m256 row_scale = _mm256_broadcast_ss(scale + static_cast<size_t>(row) * stride);
    const __m256 row_sum = _mm256_broadcast_ss(sum + static_cast<size_t>(row) * stride);
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const __m256i dot = _mm256_madd_epi16(pairs[row][g], ones);
      total[row][g] = add_scaled(dot, _mm256_load_ps(scales + 8 * g), row_scale, total[row][g]);
      total[row][g] = _mm256_fmadd_ps(_mm256_load_ps(scales + 16 + 8 * g), row_sum, total[row][g]);
    }
  }
}

template <int kRows>
void tile(const Unpacked& panel, const Packed& matrix, const Rows& rows, int first, const Output& output, int column,
          int valid) {
  const int blocks = matrix.columns / kBlock;
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const size_t start = static_cast<size_t>(first) * stored;
  const int8_t* q = rows.q + start * kBlock;
  const float* scale = rows.scale + start;
  const float* sum = rows.sum + start;
  __m256 total[kRows][2] = {};
  for (int block = 0; block < blocks; ++block) {
    tile_block<kRows>(panel.weights + block * 512, panel.scales + block * 32, q + block * kBlock, scale + block,
                      sum + block, stored, total);
  }
  const int refined = rows.refinements;
  for (int row = 0; row < kRows; ++row) {
    __m256 own[1][2] = {{total[row][0], total[row][1]}};
    for (int extra = 0; extra < refined; ++extra) {
      const int block = rows.refined[(first + row) * refined + extra];
      const size_t at = static_cast<size_t>(row) * stored + static_cast<size_t>(blocks + extra);
      tile_block<1>(panel.weights + block * 512, panel.scales + block * 32, q + at * kBlock, scale + at, sum + at,
                    stored, own);
    }
    store8(output, first + row, column, valid, own[0][0]);
    store8(output, first + row, column + 8, valid - 8, own[0][1]);
  }
}

void unpacked_panel(const Unpacked& panel, const Packed& matrix, const Rows& rows, const Output& output, int column,
                    int valid) {
  int row = 0;
  for (; row + kTileRows <= rows.count; row += kTileRows)
    tile<kTileRows>(panel, matrix, rows, row, output, column, valid);
  if (rows.count - row == 2) tile<2>(panel, matrix, rows, row, output, column, valid);
  if (rows.count - row == 1) tile<1>(panel, matrix, rows, row, output, column, valid);
}

}  // namespace

void qlinear_prefill(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output,
                     uint8_t* scratch) {
  const int blocks = matrix.columns / kBlock;
  for (int index = begin; index < end; ++index) {
    const uint8_t* panel = panel_at(matrix, index);
    const int column = (index - begin) * kPanelRows;
    const int valid = rows_at(matrix, index);
    switch (matrix.type) {
      case TensorType::q4_1:
        unpacked_panel(unpack<true>(panel, blocks, scratch), matrix, rows, output, column, valid);
        break;
      case TensorType::q4_0:
        unpacked_panel(unpack<false>(panel, blocks, scratch), matrix, rows, output, column, valid);
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
