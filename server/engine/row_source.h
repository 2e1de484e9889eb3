// The rows of a tensor in row form, whatever form they lie in.
//
// Row form is what dequantise.h and the packers read: row after row, each
// columns / block_values blocks of the tensor's type. Loaders read weights
// through this alone and in pieces of at most kMostPieceBytes, so that a file is
// never whole in memory.
//
// A safetensors author's forms (assay_storage in assay_engine.h) are translated:
// the nibbles of 32 columns into the order that Q4_0 has, column j low and column
// 16 + j high in byte j, with the scale in front of its block. Floats that are to be
// Q8_0 (head.h) are quantised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gguf.h"

namespace assay {

constexpr size_t kMostPieceBytes = size_t{64} << 20;

inline size_t row_bytes(const Tensor& tensor) {
  const TypeTraits type = traits(tensor.type);
  return static_cast<size_t>(tensor.columns / type.block_values) * type.block_bytes;
}

// Rows that a piece holds at most; at least one.
inline int rows_in_piece(const Tensor& tensor) {
  const size_t rows = kMostPieceBytes / row_bytes(tensor);
  return static_cast<int>(rows < 1 ? 1 : rows < tensor.rows ? rows : tensor.rows);
}

// Bytes of the tensor's values as they lie in the file, and of its scales where those lie apart.
size_t stored_bytes(const Tensor& tensor);
size_t scale_bytes(const Tensor& tensor);

// `count` rows from `first` on, row_bytes(tensor) each and aligned to 4 bytes: the file's own bytes where
// they lie so, else translated into `room`, which must live as long as they are read.
const uint8_t* read_rows(const Tensor& tensor, int first, int count, std::vector<uint8_t>& room);

}  // namespace assay
