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
#include "tensor_type.h"

namespace assay {

// How a tensor's rows lie in its file: as they are in a GGUF, as assay_storage says, or (which no file and no caller
// names, see head.h) as numbers of the type `stored` that are quantised as they are read.
enum class Storage : uint32_t { rows, packed, gptq, nvfp4, floats };

struct Tensor {
  std::string name;
  TensorType type;  // of its rows in row form
  uint64_t columns;  // length of a row, the fastest dimension
  uint64_t rows;     // product of all others
  uint32_t dimensions;
  const uint8_t* data;
  size_t byte_size;  // of all rows in row form (row_source.h)
  Storage storage = Storage::rows;
  const uint8_t* scales = nullptr;  // where they lie apart from the values
  float factor = 1;  // NVFP4: what its scales are divided by
  TensorType stored = TensorType::f32;  // in the storage `floats`: F32, F16 or BF16
};

// Reads a whole file's header into both tables.
void read_gguf(const uint8_t* data, size_t size, MetadataTable& metadata, std::vector<Tensor>& tensors);

}  // namespace assay
