// Weights as the kernels read them: tiles of 32 rows by one block of 32 columns.
//
// A matrix is [tile][block][bytes of a tile's block], padded with zero rows to whole
// tiles. A tile's block is planes of 32 x 16 bytes, row after row, then the scales:
//   Q4_1  one plane: byte j is column j low and 16 + j high; (scale, minimum) halves[32][2]   640 B
//   Q4_0  one plane, each nibble less 8 as a signed one;     scale half[32]                   576 B
//   Q8_0  two planes: columns 0-15, columns 16-31;           scale half[32]                  1088 B
//   F16   four planes of 8 columns                                                           2048 B
//   F32   eight planes of 4 columns                                                          4096 B
// So a warp of the decode form reads a plane, a row a lane, as one run of 512 bytes;
// and a word of a row is what a lane of an int8 product holds (matrix.cuh): the low
// nibbles columns 4t to 4t + 3, the high ones the same plus 16.
#pragma once

#include <string>

#include "../gguf.h"
#include "../packed.h"
#include "../tiles.h"
#include "check.cuh"

namespace assay::cuda {

struct Matrix {
  TensorType type = TensorType::f32;
  int rows = 0;
  int columns = 0;  // a multiple of kBlock
  const uint8_t* data = nullptr;
};

template <TensorType kType>
struct Layout {
  static constexpr bool kQuantised = kType != TensorType::f16 && kType != TensorType::f32;
  static constexpr bool kMinimum = kType == TensorType::q4_1;
  static constexpr int kPlanes = kType == TensorType::f32    ? 8
                                 : kType == TensorType::f16  ? 4
                                 : kType == TensorType::q8_0 ? 2
                                                             : 1;
  static constexpr int kScaleBytes = kMinimum ? 4 : kQuantised ? 2 : 0;  // of a row
  static constexpr int kBytes = kPlanes * kPlaneBytes + kTileRows * kScaleBytes;
  static_assert(static_cast<size_t>(kBytes) == tile_bytes(kType), "what is planned is what is packed");
};

__host__ __device__ constexpr int block_count(int columns) { return columns / kBlock; }
__host__ __device__ constexpr int tile_count(int rows) { return (rows + kTileRows - 1) / kTileRows; }

// Calls body(std::integral_constant of the type): the one switch over types.
template <typename Body>
void with_type(TensorType type, const Body& body) {
  switch (type) {
    case TensorType::f32:
      return body(std::integral_constant<TensorType, TensorType::f32>());
    case TensorType::f16:
      return body(std::integral_constant<TensorType, TensorType::f16>());
    case TensorType::q4_0:
      return body(std::integral_constant<TensorType, TensorType::q4_0>());
    case TensorType::q4_1:
      return body(std::integral_constant<TensorType, TensorType::q4_1>());
    case TensorType::q8_0:
      return body(std::integral_constant<TensorType, TensorType::q8_0>());
    default:
      unsupported(std::string("weights of type ") + traits(type).name + " are not served on this device");
  }
}

// Packs `rows` rows of a matrix as they lie in a GGUF file (`source`, in device memory) into rows
// `first` and on of a packed one. Rows that nobody packs must be zero.
void pack(TensorType type, const uint8_t* source, int rows, int columns, int first, uint8_t* packed,
          cudaStream_t stream);

}  // namespace assay::cuda
