// qlinear, prefill form: a panel is unpacked once and meets every row.
//
// Unpacked nibbles: bytes [block][8 column quads][2 groups][32], then floats
// [block][scale 16, minimum 16]. The register tile is three rows by 16 outputs:
// six float and six int16 accumulators, two weight vectors, one activation.
#include "linear_float.h"
#include "linear_nibble.h"
#include "linear_q8.h"
#include "linear_six.h"

namespace assay::cpu {
namespace {

constexpr int kTileRows = 3;

struct Unpacked {
  const uint8_t* weights;
  const float* scales;
};

template <Form kForm>
Unpacked unpack(const uint8_t* panel, int blocks, uint8_t* scratch) {
  using Block = NibbleBlock<kForm>;
  const __m256i mask = _mm256_set1_epi8(15);
  float* scales = reinterpret_cast<float*>(scratch + static_cast<size_t>(blocks) * 512);
  uint8_t* out = scratch;
  for (int index = 0; index < blocks; ++index, panel += Block::kBytes, out += 512) {
    prefetch<Block::kBytes, true>(panel + kNibblePrefetch);
    const Block block(panel);
    for (int v = 0; v < 4; ++v) {
      for (int g = 0; g < 2; ++g) {
        const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(block.weights + 64 * v + 32 * g));
        uint8_t* at = out + 64 * v + 32 * g;
        _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm256_and_si256(w, mask));
        _mm256_store_si256(reinterpret_cast<__m256i*>(at + 256), _mm256_and_si256(_mm256_srli_epi16(w, 4), mask));
      }
    }
    for (int g = 0; g < 2; ++g) {
      _mm256_store_ps(scales + index * 32 + 8 * g, block.scale[g]);
      _mm256_store_ps(scales + index * 32 + 16 + 8 * g, block.minimum[g]);
    }
  }
  return {scratch, scales};
}

// One unpacked column block times one block of each of kRows rows, `stride` bytes apart.
template <int kRows>
inline void unpacked_dots(const uint8_t* weights, const int8_t* q, size_t stride, __m256i (&dot)[kRows][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[kRows][2];
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v));
    const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 64 * v + 32));
#pragma GCC unroll 3
    for (int row = 0; row < kRows; ++row) {
      const __m256i x = broadcast4(q + static_cast<size_t>(row) * stride + 4 * v);
      const __m256i p0 = _mm256_maddubs_epi16(w0, x);
      const __m256i p1 = _mm256_maddubs_epi16(w1, x);
      if (v == 0) {
        pairs[row][0] = p0;
        pairs[row][1] = p1;
      } else {
        accumulate16(pairs[row][0], p0);
        accumulate16(pairs[row][1], p1);
      }
    }
  }
#pragma GCC unroll 3
  for (int row = 0; row < kRows; ++row) {
    for (int g = 0; g < 2; ++g) dot[row][g] = _mm256_madd_epi16(pairs[row][g], ones);
  }
}

template <int kRows>
void tile(const Unpacked& panel, int blocks, const Rows& rows, int first, const Output& output, int column, int valid) {
  const size_t stored = static_cast<size_t>(blocks + rows.refinements);
  const Row start(rows, blocks, first);
  __m256 total[kRows][2] = {};
  for (int b = 0; b < blocks; ++b) {
    __m256i dot[kRows][2];
    unpacked_dots<kRows>(panel.weights + b * 512, start.q + b * kBlock, stored * kBlock, dot);
    const float* scales = panel.scales + b * 32;
#pragma GCC unroll 3
    for (int row = 0; row < kRows; ++row) {
      const size_t at = static_cast<size_t>(row) * stored + b;
#pragma GCC unroll 2
      for (int g = 0; g < 2; ++g) {
        total[row][g] =
            add_block(_mm256_cvtepi32_ps(dot[row][g]), _mm256_load_ps(scales + 8 * g),
                      _mm256_load_ps(scales + 16 + 8 * g), start.sum[at], start.scale[at], total[row][g]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    const Row own(rows, blocks, first + row);
    __m256 residual[2] = {};
    for (int extra = 0; extra < rows.refinements; ++extra) {
      const int b = own.refined[extra];
      __m256i dot[1][2];
      unpacked_dots<1>(panel.weights + b * 512, own.residual + extra * kBlock, 0, dot);
      for (int g = 0; g < 2; ++g) {
        residual[g] = add_block(_mm256_cvtepi32_ps(dot[0][g]), _mm256_load_ps(panel.scales + b * 32 + 8 * g),
                                own.residual_scale[extra], residual[g]);
      }
    }
    for (int g = 0; g < 2; ++g) total[row][g] = _mm256_add_ps(total[row][g], residual[g]);
    store16(output, first + row, column, valid, total[row]);
  }
}

void unpacked_panel(const Unpacked& panel, int blocks, const Rows& rows, const Output& output, int column, int valid) {
  int row = 0;
  for (; row + kTileRows <= rows.count; row += kTileRows)
    tile<kTileRows>(panel, blocks, rows, row, output, column, valid);
  if (rows.count - row == 2) tile<2>(panel, blocks, rows, row, output, column, valid);
  if (rows.count - row == 1) tile<1>(panel, blocks, rows, row, output, column, valid);
}

}  // namespace

void qlinear_prefill(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output,
                     uint8_t* scratch) {
  const int blocks = matrix.columns / kBlock;
  if (rows.refinements == blocks) return qlinear_decode(matrix, begin, end, rows, output);
  for (int index = begin; index < end; ++index) {
    const uint8_t* panel = panel_at(matrix, index);
    const int column = (index - begin) * kPanelRows;
    const int valid = rows_at(matrix, index);
    switch (form_of(matrix.type)) {
      case Form::q4_1:
        unpacked_panel(unpack<Form::q4_1>(panel, blocks, scratch), blocks, rows, output, column, valid);
        break;
      case Form::q4_0:
        unpacked_panel(unpack<Form::q4_0>(panel, blocks, scratch), blocks, rows, output, column, valid);
        break;
      case Form::nibbles:
        unpacked_panel(unpack<Form::nibbles>(panel, blocks, scratch), blocks, rows, output, column, valid);
        break;
      case Form::sixes:
        six_panel<Form::sixes>(UnpackedSixes(panel, blocks, scratch), blocks, rows, output, column, valid);
        break;
      case Form::halved_sixes:
        six_panel<Form::halved_sixes>(UnpackedSixes(panel, blocks, scratch), blocks, rows, output, column, valid);
        break;
      case Form::q8_0:
        q8_panel(panel, blocks, rows, output, column, valid);
        break;
      case Form::f16:
        float_panel<Form::f16>(panel, matrix, rows, output, column, valid);
        break;
      case Form::bf16:
        float_panel<Form::bf16>(panel, matrix, rows, output, column, valid);
        break;
      case Form::f32:
        float_panel<Form::f32>(panel, matrix, rows, output, column, valid);
        break;
    }
  }
}

}  // namespace assay::cpu
