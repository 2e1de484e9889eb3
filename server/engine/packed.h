// Weights as the kernels read them: panels of 16 rows, one linear stream.
//
// A panel holds 16 consecutive rows of a matrix, padded with zeros past the
// last. It is a sequence of column blocks of 32, each
//   Q4_1           f16 scale[16], f16 minimum[16], nibbles[4][16 rows][4]     320 B
//   Q4_0           f16 scale[16], nibbles[4][16 rows][4]                      288 B
//   Q8_0           f16 scale[16], bytes[8][16 rows][4]                        544 B
//   nibbles        f32 scale[16], f32 minimum[16], nibbles[4][16 rows][4]     384 B
//   sixes          f32 scale[16], f32 minimum[16], nibbles[4][16 rows][4],
//                  high bits[2][16 rows][4]                                   512 B
//   halved sixes   the same, but a second scale in the minimum's place: the
//                  first is of columns 0 to 15, the second of 16 to 31        512 B
//   F16, BF16      half[32 columns][16 rows]                                 1024 B
//   F32            float[32 columns][16 rows]                                2048 B
// Four columns of one row lie together (a 32-bit lane of a vector register), and
// 16 rows make 64 bytes (one register of AVX-512, two of AVX2): byte 64 v + 4 r + j
// is column 4 v + j of row r; a nibble byte holds that column low and column
// 16 + 4 v + j high. Sixes are integers of -32 to 31, stored with 32 added: the
// high two bits of nibble vectors 2 u and 2 u + 1 lie in vector u of theirs, from
// bit 0 on those of 2 u low, 2 u high, 2 u + 1 low, 2 u + 1 high.
//
// Files' types have many layouts, and a processor gains nothing from most: those
// with a form of their own are read as they are stored, the others are taken apart
// into runs (run.h), whose scales become floats. Q4_K and W4A16 are nibbles (6 bits
// a weight instead of 4.5 and 4.125), Q5_0, Q5_1 and Q5_K sixes, Q6_K and NVFP4
// halved sixes (8 bits): wider than the file, and every product still exact.
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

enum class Form { f32, f16, bf16, q4_0, q4_1, q8_0, nibbles, sixes, halved_sixes };

// The form that a type is packed in. (Of internal linkage: rooms compiled for other instructions use it.)
static constexpr Form form_of(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return Form::f32;
    case TensorType::f16:
      return Form::f16;
    case TensorType::bf16:
      return Form::bf16;
    case TensorType::q4_0:
      return Form::q4_0;
    case TensorType::q4_1:
      return Form::q4_1;
    case TensorType::q8_0:
      return Form::q8_0;
    case TensorType::q4_k:
    case TensorType::w4_f16:
    case TensorType::w4_bf16:
      return Form::nibbles;
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q5_k:
      return Form::sixes;
    case TensorType::q6_k:
    case TensorType::nvfp4:
      return Form::halved_sixes;
  }
  return Form::f32;
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
  bool quantised() const {
    return type != TensorType::f32 && type != TensorType::f16 && type != TensorType::bf16;
  }
};

size_t block_bytes(TensorType type);  // of one panel's column block

// Writes panel `index` of a row-major matrix in row form (tensor_type.h) to `out`, panel_bytes long.
// `factor` is the tensor's (gguf.h); columns are a multiple of the type's block.
void pack_panel(TensorType type, const uint8_t* source, int rows, int columns, int index, uint8_t* out,
                float factor = 1);

}  // namespace assay
