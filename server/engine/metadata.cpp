#include "metadata.h"

#include <cstring>

#include "error.h"

namespace assay {
namespace {

constexpr uint64_t kLongestKey = 65535;

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

template <typename T>
T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

[[noreturn]] void wrong_type(std::string_view key, const char* wanted) {
  bad_file("metadata key " + quoted(key) + " is not " + wanted);
}

uint64_t integer_at(const uint8_t* bytes, Value type, std::string_view key) {
  int64_t value = 0;
  switch (type) {
    case Value::u8:
      value = load<uint8_t>(bytes);
      break;
    case Value::i8:
      value = load<int8_t>(bytes);
      break;
    case Value::u16:
      value = load<uint16_t>(bytes);
      break;
    case Value::i16:
      value = load<int16_t>(bytes);
      break;
    case Value::u32:
      value = load<uint32_t>(bytes);
      break;
    case Value::i32:
      value = load<int32_t>(bytes);
      break;
    case Value::u64:
    case Value::i64:
      value = load<int64_t>(bytes);
      break;
    default:
      wrong_type(key, "an integer");
  }
  if (value < 0) bad_file("metadata key " + quoted(key) + " is negative or too large");
  return static_cast<uint64_t>(value);
}

}  // namespace

Value value_type(uint32_t raw, std::string_view key) {
  if (raw > static_cast<uint32_t>(Value::f64)) {
    bad_file("metadata key " + quoted(key) + " has the unknown value type " + std::to_string(raw));
  }
  return static_cast<Value>(raw);
}

void check_items(Cursor& cursor, Value type, uint64_t count, std::string_view key) {
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

void MetadataTable::add(const Metadata& entry) {
  if (entry.key.empty() || entry.key.size() > kLongestKey) {
    bad_file("a metadata key of " + std::to_string(entry.key.size()) + " bytes");
  }
  if (!keys_.emplace(entry.key, entries_.size()).second) {
    bad_file("metadata key " + quoted(entry.key) + " stands twice");
  }
  entries_.push_back(entry);
}

const Metadata* MetadataTable::find(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &entries_[found->second];
}

std::string MetadataTable::text(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  if (entry->type != Value::string) wrong_type(key, "a string");
  return {reinterpret_cast<const char*>(entry->bytes) + 8, entry->byte_size - 8};
}

uint64_t MetadataTable::integer(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  return integer_at(entry->bytes, entry->type, key);
}

uint64_t MetadataTable::integer_or(std::string_view key, uint64_t fallback) const {
  return find(key) == nullptr ? fallback : integer(key);
}

double MetadataTable::real(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  if (entry->type == Value::f32) return load<float>(entry->bytes);
  if (entry->type == Value::f64) return load<double>(entry->bytes);
  wrong_type(key, "a floating-point number");
}

std::vector<uint64_t> MetadataTable::integers(std::string_view key) const {
  const Metadata* entry = find(key);
  if (entry == nullptr) bad_file("metadata key " + quoted(key) + " is missing");
  if (entry->item_type == Value::string) wrong_type(key, "of integers");
  std::vector<uint64_t> values;
  const uint32_t size = width(entry->item_type);
  for (uint64_t item = 0; item < entry->count; ++item) {
    values.push_back(integer_at(entry->bytes + item * size, entry->item_type, key));
  }
  return values;
}

double MetadataTable::real_or(std::string_view key, double fallback) const {
  return find(key) == nullptr ? fallback : real(key);
}

}  // namespace assay
