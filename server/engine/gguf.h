// GGUF v3 reader over bytes in memory.
//
// The file is hostile until proven whole: every count, length and offset is
// checked against what is left before it is used, so a truncated or altered
// header is an Error with a message, never a read past the end. Values are
// views into the bytes given; those must outlive the tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "metadata.h"

namespace assay {

// ggml tensor types this engine reads, as numbered in the file.
enum class TensorType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q8_0 = 8 };

struct TypeTraits {
  const char* name;
  uint32_t block_values;  // values in a block
  uint32_t block_bytes;
};

// Error (unsupported), naming the type, when it is not one of TensorType.
TypeTraits traits(TensorType type);

struct Tensor {
  std::string name;
  TensorType type;
  uint64_t columns;  // length of a row, the fastest dimension
  uint64_t rows;     // product of all others
  uint32_t dimensions;
  const uint8_t* data;
  size_t byte_size;
};

// Reads a whole file's header into both tables.
void read_gguf(const uint8_t* data, size_t size, MetadataTable& metadata, std::vector<Tensor>& tensors);

}  // namespace assay
