#include "gguf.h"

#include <cstring>

#include "error.h"

namespace assay {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", little endian
constexpr uint32_t kVersion = 3;
constexpr uint64_t kLongestName = 65535;
constexpr uint32_t kMostDimensions = 4;
constexpr uint64_t kSmallestEntry = 8 + 4 + 1;           // a key of no bytes, a type, one byte
constexpr uint64_t kSmallestTensor = 8 + 4 + 8 + 4 + 8;  // no name, one dimension

Metadata read_metadata(Cursor& cursor) {
  Metadata entry{};
  entry.key = cursor.text("a metadata key");
  entry.type = value_type(cursor.number<uint32_t>("a metadata type"), entry.key);
  entry.item_type = entry.type;
  entry.count = 1;
  if (entry.type == Value::array) {
    entry.item_type = value_type(cursor.number<uint32_t>("an array's type"), entry.key);
    if (entry.item_type == Value::array) {
      unsupported("metadata key " + quoted(entry.key) + " is an array of arrays");
    }
    entry.count = cursor.number<uint64_t>("an array's length");
  }
  const size_t start = cursor.at();
  entry.bytes = cursor.take(0, "a metadata value");
  check_items(cursor, entry.item_type, entry.count, entry.key);
  entry.byte_size = cursor.at() - start;
  return entry;
}

uint64_t multiply(uint64_t a, uint64_t b, const std::string& name) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) bad_file("tensor " + quoted(name) + " is larger than can be addressed");
  return product;
}

struct Placed {
  Tensor tensor;
  uint64_t offset;
};

Placed read_tensor(Cursor& cursor) {
  Placed placed{};
  Tensor& tensor = placed.tensor;
  tensor.name = std::string(cursor.text("a tensor's name"));
  if (tensor.name.empty() || tensor.name.size() > kLongestName) {
    bad_file("a tensor name of " + std::to_string(tensor.name.size()) + " bytes");
  }
  tensor.dimensions = cursor.number<uint32_t>("a tensor's dimension count");
  if (tensor.dimensions == 0 || tensor.dimensions > kMostDimensions) {
    bad_file("tensor " + quoted(tensor.name) + " has " + std::to_string(tensor.dimensions) + " dimensions");
  }
  tensor.rows = 1;
  for (uint32_t axis = 0; axis < tensor.dimensions; ++axis) {
    const uint64_t extent = cursor.number<uint64_t>("a tensor's shape");
    if (extent == 0) bad_file("tensor " + quoted(tensor.name) + " has a dimension of zero");
    if (axis == 0) {
      tensor.columns = extent;
    } else {
      tensor.rows = multiply(tensor.rows, extent, tensor.name);
    }
  }
  const uint32_t type_number = cursor.number<uint32_t>("a tensor's type");
  placed.offset = cursor.number<uint64_t>("a tensor's offset");
  TypeTraits type;
  try {
    type = file_traits(type_number);
  } catch (const Error& error) {
    throw Error(error.status(), "tensor " + quoted(tensor.name) + ": " + error.what());
  }
  tensor.type = static_cast<TensorType>(type_number);
  if (tensor.columns % type.block_values != 0) {
    bad_file("tensor " + quoted(tensor.name) + ": a row of " + std::to_string(tensor.columns) +
             " values is no multiple of the block of " + type.name);
  }
  const uint64_t row_bytes = multiply(tensor.columns / type.block_values, type.block_bytes, tensor.name);
  tensor.byte_size = multiply(row_bytes, tensor.rows, tensor.name);
  return placed;
}

}  // namespace

void read_gguf(const uint8_t* data, size_t size, MetadataTable& metadata, std::vector<Tensor>& tensors) {
  Cursor cursor(data, size);
  if (cursor.number<uint32_t>("the magic number") != kMagic) bad_file("not a GGUF file: it does not begin with 'GGUF'");
  const uint32_t version = cursor.number<uint32_t>("the version");
  if (version != kVersion) unsupported("GGUF version " + std::to_string(version) + " (only 3 is read)");
  const uint64_t tensor_count = cursor.number<uint64_t>("the tensor count");
  const uint64_t metadata_count = cursor.number<uint64_t>("the metadata count");
  if (metadata_count > cursor.left() / kSmallestEntry) {
    bad_file("the header claims " + std::to_string(metadata_count) + " metadata entries, more than the file holds");
  }
  if (tensor_count > cursor.left() / kSmallestTensor) {
    bad_file("the header claims " + std::to_string(tensor_count) + " tensors, more than the file holds");
  }
  for (uint64_t index = 0; index < metadata_count; ++index) {
    metadata.add(read_metadata(cursor));
  }
  std::vector<Placed> placed;
  for (uint64_t index = 0; index < tensor_count; ++index) placed.push_back(read_tensor(cursor));

  const uint64_t alignment = metadata.integer_or("general.alignment", 32);
  if (alignment < 8 || alignment > (1u << 20) || (alignment & (alignment - 1)) != 0) {
    bad_file("general.alignment is " + std::to_string(alignment) + ", not a power of two of at least 8");
  }
  const uint64_t start = (cursor.at() + alignment - 1) / alignment * alignment;
  for (Placed& item : placed) {
    Tensor& tensor = item.tensor;
    if (item.offset % alignment != 0) bad_file("tensor " + quoted(tensor.name) + " begins at an unaligned offset");
    if (start > size || item.offset > size - start || tensor.byte_size > size - start - item.offset) {
      bad_file("tensor " + quoted(tensor.name) + " lies past the end of the file");
    }
    tensor.data = data + start + item.offset;
    tensors.push_back(std::move(tensor));
  }
}

}  // namespace assay
