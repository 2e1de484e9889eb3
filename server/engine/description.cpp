#include "description.h"

#include <climits>
#include <cmath>
#include <cstring>
#include <string>

#include "error.h"
#include "row_source.h"

namespace assay {
namespace {

constexpr size_t kLongestName = 65535;
constexpr uint64_t kMostValues = uint64_t{1} << 48;  // of a tensor: what sizes are computed from cannot overflow

bool fits(Storage storage, TensorType type) {
  switch (storage) {
    case Storage::rows:
      return type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
    case Storage::packed:
    case Storage::gptq:
      return type == TensorType::w4_f16 || type == TensorType::w4_bf16;
    case Storage::nvfp4:
      return type == TensorType::nvfp4;
    case Storage::floats:
      return false;
  }
  return false;
}

const uint8_t* locate(const std::string& name, const char* what, const char* path, uint64_t offset, uint64_t size,
                      uint64_t wanted, const Place& place) {
  if (path == nullptr) bad_argument("tensor " + quoted(name) + ": no path of its " + what);
  if (size != wanted) {
    bad_file("tensor " + quoted(name) + ": its " + what + " are " + std::to_string(size) + " bytes, its shape asks for " +
             std::to_string(wanted));
  }
  const Mapping* file = place(path);
  if (offset > file->size() || size > file->size() - offset) {
    bad_file("tensor " + quoted(name) + ": its " + what + " lie past the end of " + path);
  }
  return file->data() + offset;
}

void check_shape(const Tensor& tensor) {
  const std::string name = "tensor " + quoted(tensor.name);
  if (tensor.columns == 0 || tensor.rows == 0) bad_file(name + " has a dimension of zero");
  if (tensor.columns > INT_MAX || tensor.rows > INT_MAX || tensor.columns > kMostValues / tensor.rows) {
    bad_file(name + " is larger than can be addressed");
  }
  if (!fits(tensor.storage, tensor.type)) {
    bad_argument(name + " of the type " + traits(tensor.type).name + " cannot be stored as it is said to be");
  }
  const TypeTraits type = traits(tensor.type);
  if (tensor.columns % type.block_values != 0) {
    bad_file(name + ": a row of " + std::to_string(tensor.columns) + " values is no multiple of the block of " +
             type.name);
  }
}

}  // namespace

Metadata described_metadata(const assay_metadata& given) {
  if (given.key == nullptr || (given.bytes == nullptr && given.byte_size != 0)) bad_argument("metadata without bytes");
  Metadata entry{};
  entry.key = {given.key, static_cast<size_t>(given.key_size)};
  entry.type = value_type(given.type, entry.key);
  entry.item_type = value_type(given.item_type, entry.key);
  entry.count = given.count;
  entry.bytes = given.bytes;
  entry.byte_size = static_cast<size_t>(given.byte_size);
  const bool plain = entry.type != Value::array;
  if (entry.item_type == Value::array || (plain && (entry.item_type != entry.type || entry.count != 1))) {
    bad_argument("metadata key " + quoted(entry.key) + " is neither a value nor an array of values");
  }
  Cursor cursor(entry.bytes, entry.byte_size);
  check_items(cursor, entry.item_type, entry.count, entry.key);
  if (cursor.left() != 0) bad_argument("metadata key " + quoted(entry.key) + " has bytes behind its value");
  return entry;
}

Tensor described_tensor(const assay_tensor_source& given, const Place& place) {
  if (given.name == nullptr || given.name[0] == '\0' || std::strlen(given.name) > kLongestName) {
    bad_argument("a tensor without a name");
  }
  Tensor tensor{};
  tensor.name = given.name;
  if (given.storage > ASSAY_STORAGE_NVFP4) {
    bad_argument("tensor " + quoted(tensor.name) + " is stored as " + std::to_string(given.storage));
  }
  tensor.storage = static_cast<Storage>(given.storage);
  tensor.type = static_cast<TensorType>(given.type);
  tensor.columns = given.columns;
  tensor.rows = given.rows;
  tensor.dimensions = given.rows == 1 ? 1 : 2;
  tensor.factor = given.factor;
  if (!std::isfinite(given.factor) || !(given.factor > 0.0f)) {
    bad_file("tensor " + quoted(tensor.name) + ": the scale of its scales is " + std::to_string(given.factor));
  }
  check_shape(tensor);
  tensor.byte_size = row_bytes(tensor) * static_cast<size_t>(tensor.rows);
  tensor.data = locate(tensor.name, "values", given.path, given.offset, given.size, stored_bytes(tensor), place);
  if (tensor.storage != Storage::rows) {
    tensor.scales = locate(tensor.name, "scales", given.scale_path, given.scale_offset, given.scale_size,
                           scale_bytes(tensor), place);
  }
  return tensor;
}

}  // namespace assay
