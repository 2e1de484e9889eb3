// Weights as the kernels read them: tiles of 32 rows by one group of columns.
//
// A matrix is [tile][group][bytes of a tile's group], padded with zero rows to whole tiles. A
// group is the columns under one header of a row: one block of 32, or the 4 or 8 blocks that
// share scales in the file. A tile's group is
//   planes   [block][32 rows][16 bytes], several planes a block where 16 bytes do not hold it
//   high     [block][32 rows][4 or 8 bytes], the bits that nibbles lack
//   header   [32 rows][bytes of a row]
// as many bits a weight as in the file, padding rows apart:
//            columns  planes of a block       high    header of a row             bytes
//   W4       128      nibbles                         scale                       2112
//   NVFP4     32      nibbles                         two E4M3 scales              576
//   Q4_0      32      nibbles                         scale                        576
//   Q4_1      32      nibbles                         scale, minimum               640
//   Q5_0      32      nibbles                 4       scale                        704
//   Q5_1      32      nibbles                 4       scale, minimum               768
//   Q8_0      32      columns 0-15, 16-31             scale                       1088
//   Q4_K     256      nibbles                         16 bytes, see below         4608
//   Q5_K     256      nibbles                 4       16 bytes, see below         5632
//   Q6_K     256      nibbles                 8       16 scales, then [32] scale  6720
//   F16, BF16 32      four of 8 columns                                           2048
//   F32       32      eight of 4 columns                                          4096
// A warp of the decode form reads a plane, a row a lane, as one run of 512 bytes; and a word of
// a row is what a lane of an int8 product holds (matrix.cuh): word t of a plane of nibbles has
// columns 4t to 4t + 3 in its low nibbles and the same plus 16 in the high ones. How the words
// become bytes, and where the high bits lie, is said in unpack.cuh.
// The header of Q4_K and Q5_K is scale and minimum of the group as halves, then for each of its
// blocks a byte with the low four bits of the block's scale and, above, of its minimum, then
// four bits of a word with the upper two of each.
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
  int columns = 0;  // a multiple of the type's group
  const uint8_t* data = nullptr;
  float factor = 1.0f;  // what NVFP4's scales are divided by
};

// How a block's integers become values (linear.cuh).
enum class Scaling {
  plain,    // scale * q
  minimum,  // scale * q + minimum
  halves,   // columns 0-15 and 16-31 have a scale each
};

template <typename... Types>
constexpr bool is_one_of(TensorType type, Types... types) {
  return ((type == types) || ...);
}

template <TensorType kType>
struct Layout {
  static constexpr bool kQuantised = !is_float(kType);
  static constexpr bool kSixteenBits = is_one_of(kType, TensorType::f16, TensorType::bf16);
  static constexpr bool kSuper = is_one_of(kType, TensorType::q4_k, TensorType::q5_k, TensorType::q6_k);
  static constexpr bool kW4 = is_one_of(kType, TensorType::w4_f16, TensorType::w4_bf16);
  static constexpr bool kFive = is_one_of(kType, TensorType::q5_0, TensorType::q5_1, TensorType::q5_k);
  static constexpr bool kSix = kType == TensorType::q6_k;
  static constexpr bool kMinimum =
      is_one_of(kType, TensorType::q4_1, TensorType::q5_1, TensorType::q4_k, TensorType::q5_k);
  static constexpr Scaling kScaling = kMinimum                               ? Scaling::minimum
                                      : kSix || kType == TensorType::nvfp4 ? Scaling::halves
                                                                           : Scaling::plain;
  static constexpr int kGroup = kSuper ? 8 : kW4 ? 4 : 1;  // blocks
  static constexpr int kPlanes = kType == TensorType::f32 ? 8 : kSixteenBits ? 4 : kType == TensorType::q8_0 ? 2 : 1;
  static constexpr int kHighWords = kSix ? 2 : kFive ? 1 : 0;
  static constexpr int kHeaderBytes = kSix ? 18 : kSuper ? 16 : kMinimum ? 4 : kQuantised ? 2 : 0;  // of a row
  static constexpr int kHeaderWords = kQuantised ? (kHeaderBytes + 3) / 4 : 1;
  static constexpr int kBlockBytes = kPlanes * kPlaneBytes;      // of a block's planes
  static constexpr int kHighBytes = kTileRows * kHighWords * 4;  // of a block
  static constexpr int kHighAt = kGroup * kBlockBytes;
  static constexpr int kHeaderAt = kHighAt + kGroup * kHighBytes;
  static constexpr int kBytes = kHeaderAt + kTileRows * kHeaderBytes;  // of a tile's group
  static_assert(kGroup * kBlock == group_columns(kType), "what is planned is what is packed");
  static_assert(static_cast<size_t>(kBytes) == group_bytes(kType), "what is planned is what is packed");
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
    case TensorType::bf16:
      return body(std::integral_constant<TensorType, TensorType::bf16>());
    case TensorType::q4_0:
      return body(std::integral_constant<TensorType, TensorType::q4_0>());
    case TensorType::q4_1:
      return body(std::integral_constant<TensorType, TensorType::q4_1>());
    case TensorType::q5_0:
      return body(std::integral_constant<TensorType, TensorType::q5_0>());
    case TensorType::q5_1:
      return body(std::integral_constant<TensorType, TensorType::q5_1>());
    case TensorType::q8_0:
      return body(std::integral_constant<TensorType, TensorType::q8_0>());
    case TensorType::q4_k:
      return body(std::integral_constant<TensorType, TensorType::q4_k>());
    case TensorType::q5_k:
      return body(std::integral_constant<TensorType, TensorType::q5_k>());
    case TensorType::q6_k:
      return body(std::integral_constant<TensorType, TensorType::q6_k>());
    case TensorType::w4_f16:
      return body(std::integral_constant<TensorType, TensorType::w4_f16>());
    case TensorType::w4_bf16:
      return body(std::integral_constant<TensorType, TensorType::w4_bf16>());
    case TensorType::nvfp4:
      return body(std::integral_constant<TensorType, TensorType::nvfp4>());
  }
}

// Packs `rows` rows of a matrix as they lie in a GGUF file (`source`, in device memory) into rows
// `first` and on of a packed one. Rows that nobody packs must be zero.
void pack(TensorType type, const uint8_t* source, int rows, int columns, int first, uint8_t* packed,
          cudaStream_t stream);

}  // namespace assay::cuda
