// A model's metadata: values of GGUF's types by key.
//
// Values are views into the bytes they were read from; those must outlive this
// object. An entry is whole once `check_items` has gone over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cursor.h"

namespace assay {

// GGUF value types, as numbered in the file.
enum class Value : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct Metadata {
  std::string_view key;
  Value type;
  Value item_type;  // type itself unless an array
  uint64_t count;   // 1 unless an array
  const uint8_t* bytes;
  size_t byte_size;
};

// Error naming the key when there is no value type of that number.
Value value_type(uint32_t raw, std::string_view key);

// Moves the cursor past `count` values; Error naming the key when there are fewer.
void check_items(Cursor& cursor, Value type, uint64_t count, std::string_view key);

class MetadataTable {
 public:
  void add(const Metadata& entry);  // Error when its key is absurd or stands twice

  const std::vector<Metadata>& entries() const { return entries_; }
  const Metadata* find(std::string_view key) const;  // nullptr when absent

  // Typed access; Error naming the key when it is missing or of another type.
  std::string text(std::string_view key) const;
  uint64_t integer(std::string_view key) const;
  uint64_t integer_or(std::string_view key, uint64_t fallback) const;
  double real(std::string_view key) const;
  double real_or(std::string_view key, double fallback) const;
  std::vector<uint64_t> integers(std::string_view key) const;  // of an array, or the one of a plain value

 private:
  std::vector<Metadata> entries_;
  std::unordered_map<std::string_view, size_t> keys_;
};

}  // namespace assay
