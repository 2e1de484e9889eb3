// How many bytes weights take on a device: tiles of 32 rows by the columns that share a header (cuda/packed.cuh
// says how they lie). Plain C++, so that a model can be planned where there is no device.
#pragma once

#include <cstddef>

#include "packed.h"

namespace assay {

constexpr int kTileRows = 32;                 // rows that lie together
constexpr int kPlaneBytes = kTileRows * 16;  // sixteen bytes of each row

constexpr size_t kDeviceAlignment = 256;  // of an array among others in one allocation

constexpr size_t aligned_bytes(size_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

constexpr bool is_float(TensorType type) {
  return type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
}

// Columns of a row under one header: a block of the file, or the 32 that kernels take at once.
constexpr int group_columns(TensorType type) {
  switch (type) {
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
      return 256;
    case TensorType::w4_f16:
    case TensorType::w4_bf16:
      return 128;
    default:
      return kBlock;
  }
}

// Bytes of a group of one row: as many as in a file.
constexpr int row_group_bytes(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return 4 * kBlock;
    case TensorType::f16:
    case TensorType::bf16:
      return 2 * kBlock;
    case TensorType::q4_0:
    case TensorType::nvfp4:
      return 18;
    case TensorType::q4_1:
      return 20;
    case TensorType::q5_0:
      return 22;
    case TensorType::q5_1:
      return 24;
    case TensorType::q8_0:
      return 34;
    case TensorType::w4_f16:
    case TensorType::w4_bf16:
      return 66;
    case TensorType::q4_k:
      return 144;
    case TensorType::q5_k:
      return 176;
    case TensorType::q6_k:
      return 210;
  }
  return 0;
}

// Bytes of a group of a tile's rows.
constexpr size_t group_bytes(TensorType type) { return static_cast<size_t>(kTileRows * row_group_bytes(type)); }

// Bytes of a matrix, the rows that fill its last tile included.
constexpr size_t packed_bytes(TensorType type, int rows, int columns) {
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  return group_bytes(type) * static_cast<size_t>(tiles) * static_cast<size_t>(columns / group_columns(type));
}

}  // namespace assay
