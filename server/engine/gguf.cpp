#include "gguf.h"

#include <algorithm>
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

// A position in the bytes that cannot leave them.
class Cursor {
 public:
  Cursor(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t at() const { return at_; }
  size_t left() const { return size_ - at_; }

  const uint8_t* take(uint64_t count, const char* what) {
    if (count > left()) {
      bad_file("the file ends inside " + std::string(what) + ": " + std::to_string(count) + " bytes at offset " +
               std::to_string(at_) + ", " + std::to_string(left()) + " left");
    }
    const uint8_t* start = data_ + at_;
    at_ += static_cast<size_t>(count);
    return start;
  }

  template <typename T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  std::string_view text(const char* what) {
    const uint64_t length = number<uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<size_t>(length)};
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// Bytes of a value of fixed width; 0 for strings and arrays.
uint32_t width(Value type) {
  switch (type) {
    case Value::u8:
    case Value::i8:
    case Value::boolean:
      return 1;
    case Value::u16:
    case Value::i16:
      return 2;
    case Value::u32:
    case Value::i32:
    case Value::f32:
      return 4;
    case Value::u64:
    case Value::i64:
    case Value::f64:
      return 8;
    case Value::string:
    case Value::array:
      return 0;
  }
  return 0;
}

Value value_type(uint32_t raw, std::string_view key) {
  if (raw > static_cast<uint32_t>(Value::f64)) {
    bad_file("metadata key " + quoted(key) + " has the unknown value type " + std::to_string(raw));
  }
  return static_cast<Value>(raw);
}

void skip_items(Cursor& cursor, Value type, uint64_t count, std::string_view key) {
  const uint32_t size = width(type);
  const uint64_t smallest = size != 0 ? size : 8;  // a string is at least its length
  if (count > cursor.left() / smallest) {
    bad_file("metadata key " + quoted(key) + " claims " + std::to_string(count) + " items, more than the file holds");
  }
  if (size != 0) {
    cursor.take(count * size, "a metadata value");
    return;
  }
  for (uint64_t item = 0; item < count; ++item) cursor.text("a metadata string");
}

Metadata read_metadata(Cursor& cursor) {
  Metadata entry{};
  entry.key = cursor.text("a metadata key");
  if (entry.key.empty() || entry.key.size() > kLongestName) {
    bad_file("a metadata key of " + std::to_string(entry.key.size()) + " bytes");
  }
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
  skip_items(cursor, entry.item_type, entry.count, entry.key);
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
  tensor.type = static_cast<TensorType>(cursor.number<uint32_t>("a tensor's type"));
  placed.offset = cursor.number<uint64_t>("a tensor's offset");
  TypeTraits type;
  try {
    type = traits(tensor.type);
  } catch (const Error& error) {
    throw Error(error.status(), "tensor " + quoted(tensor.name) + ": " + error.what());
  }
  if (tensor.columns % type.block_values != 0) {
    bad_file("tensor " + quoted(tensor.name) + ": a row of " + std::to_string(tensor.columns) +
             " values is no multiple of the block of " + type.name);
  }
  const uint64_t row_bytes = multiply(tensor.columns / type.block_values, type.block_bytes, tensor.name);
  tensor.byte_size = multiply(row_bytes, tensor.rows, tensor.name);
  return placed;
}

template <typename T>
T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

[[noreturn]] void wrong_type(std::string_view key, const char* wanted) {
  bad_file("metadata key " + quoted(key) + " is not " + wanted);
}

}  // namespace

TypeTraits traits(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return {"F32", 1, 4};
    case TensorType::f16:
      return {"F16", 1, 2};
    case TensorType::q4_0:
      return {"Q4_0", 32, 18};
    case TensorType::q4_1:
      return {"Q4_1", 32, 20};
    case TensorType::q8_0:
      return {"Q8_0", 32, 34};
  }
  unsupported("tensor type " + std::to_string(static_cast<uint32_t>(type)) +
              " is not supported (F32, F16, Q4_0, Q4_1 and Q8_0 are)");
}

Gguf::Gguf(const uint8_t* data, size_t size) {
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
    const Metadata entry = read_metadata(cursor);
    if (!keys_.emplace(entry.key, metadata_.size()).second) {
      bad_file("metadata key " + quoted(entry.key) + " stands twice");
    }
    metadata_.push_back(entry);
  }
  std::vector<Placed> placed;
  for (uint64_t index = 0; index < tensor_count; ++index) placed.push_back(read_tensor(cursor));

  const uint64_t alignment = integer_or("general.alignment", 32);
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
    if (!names_.emplace(tensor.name, tensors_.size()).second) {
      bad_file("tensor " + quoted(tensor.name) + " stands twice");
    }
    tensors_.push_back(std::move(tensor));
  }
  check_layout();
}

void Gguf::check_layout() const {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) { return a->data < b->data; });
  for (size_t index = 1; index < order.size(); ++index) {
    if (order[index - 1]->data + order[index - 1]->byte_size > order[index]->data) {
      bad_file("tensors " + quoted(order[index - 1]->name) + " and " + quoted(order[index]->name) + " overlap");
    }
  }
}

const Metadata* Gguf::find(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second];
}

const Tensor* Gguf::find_tensor(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

std::string Gguf::text(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  if (entry->type != Value::string) wrong_type(key, "a string");
  return {reinterpret_cast<const char*>(entry->bytes) + 8, entry->byte_size - 8};
}

uint64_t Gguf::integer(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  int64_t value = 0;
  switch (entry->type) {
    case Value::u8:
      value = load<uint8_t>(entry->bytes);
      break;
    case Value::i8:
      value = load<int8_t>(entry->bytes);
      break;
    case Value::u16:
      value = load<uint16_t>(entry->bytes);
      break;
    case Value::i16:
      value = load<int16_t>(entry->bytes);
      break;
    case Value::u32:
      value = load<uint32_t>(entry->bytes);
      break;
    case Value::i32:
      value = load<int32_t>(entry->bytes);
      break;
    case Value::u64:
    case Value::i64:
      value = load<int64_t>(entry->bytes);
      break;
    default:
      wrong_type(key, "an integer");
  }
  if (value < 0) bad_file("metadata key " + quoted(key) + " is negative or too large");
  return static_cast<uint64_t>(value);
}

uint64_t Gguf::integer_or(std::string_view key, uint64_t fallback) const {
  return find(key) == nullptr ? fallback : integer(key);
}

double Gguf::real(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  if (entry->type == Value::f32) return load<float>(entry->bytes);
  if (entry->type == Value::f64) return load<double>(entry->bytes);
  wrong_type(key, "a floating-point number");
}

double Gguf::real_or(std::string_view key, double fallback) const {
  return find(key) == nullptr ? fallback : real(key);
}

}  // namespace assay
