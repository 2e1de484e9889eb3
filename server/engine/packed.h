// Weights as the kernels read them: panels of 16 rows, one linear stream.
//
// A panel holds 16 consecutive rows of a matrix, padded with zeros past the
// last. It is a sequence of column blocks of 32, each
//   Q4_1  f16 scale[16], f16 minimum[16], nibbles[4][16 rows][4]   320 B
//   Q4_0  f16 scale[16], nibbles[4][16 rows][4]                    288 B
//   Q8_0  f16 scale[16], bytes[8][16 rows][4]                      544 B
//   F16   half[32 columns][16 rows]                               1024 B
//   F32   float[32 columns][16 rows]                              2048 B
// Four columns of one row lie together (a 32-bit lane of a vector register), and
// 16 rows make 64 bytes (one register of AVX-512, two of AVX2): byte 64 v + 4 r + j
// is column 4 v + j of row r; a nibble byte holds that column low and column
// 16 + 4 v + j high.
//
// Panels of one matrix may be interleaved with another's (gate and up) so that
// a thread reads one stream: panel p lies at (p / group) * group_bytes +
// (p % group) * panel_bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf.h"

namespace assay {

constexpr int kPanelRows = 16;
constexpr int kBlock = 32;  // columns a scale covers

enum class Form { f32, f16, q4_0, q4_1, q8_0, none };

// The form that a type is packed in. (Of internal linkage: rooms compiled for other instructions use it.)
static constexpr Form form_of(TensorType type) {
  return type == TensorType::f32    ? Form::f32
         : type == TensorType::f16  ? Form::f16
         : type == TensorType::q4_0 ? Form::q4_0
         : type == TensorType::q4_1 ? Form::q4_1
         : type == TensorType::q8_0 ? Form::q8_0
                                    : Form::none;
}

struct Packed {
  TensorType type = TensorType::f32;
  int rows = 0;
  int columns = 0;  // a multiple of kBlock
  const uint8_t* base = nullptr;
  size_t panel_bytes = 0;
  size_t group_bytes = 0;
  int group = 1;

  int panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int blocks() const { return columns / kBlock; }
  const uint8_t* panel(int index) const {
    return base + static_cast<size_t>(index / group) * group_bytes + static_cast<size_t>(index % group) * panel_bytes;
  }
  int rows_in(int index) const {
    const int left = rows - index * kPanelRows;
    return left < kPanelRows ? left : kPanelRows;
  }
  bool quantised() const { return type != TensorType::f32 && type != TensorType::f16; }
};

size_t block_bytes(TensorType type);  // of one panel's column block; Error (unsupported) for a type without a form

// Writes panel `index` of a row-major ggml matrix to `out`, panel_bytes long.
void pack_panel(TensorType type, const uint8_t* source, int rows, int columns, int index, uint8_t* out);

}  // namespace assay
