// GGUF v3 reader over bytes in memory.
//
// The file is hostile until proven whole: every count, length and offset is
// checked against what is left before it is used, so a truncated or altered
// header is an Error with a message, never a read past the end. Values are
// views into the bytes given; those must outlive this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace assay {

// GGUF value types, as numbered in the file.
enum class Value : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// ggml tensor types this engine reads, as numbered in the file.
enum class TensorType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q8_0 = 8 };

struct TypeTraits {
  const char* name;
  uint32_t block_values;  // values in a block
  uint32_t block_bytes;
};

// Error (unsupported), naming the type, when it is not one of TensorType.
TypeTraits traits(TensorType type);

struct Metadata {
  std::string_view key;
  Value type;
  Value item_type;  // type itself unless an array
  uint64_t count;   // 1 unless an array
  const uint8_t* bytes;
  size_t byte_size;
};

struct Tensor {
  std::string name;
  TensorType type;
  uint64_t columns;  // length of a row, the fastest dimension
  uint64_t rows;     // product of all others
  uint32_t dimensions;
  const uint8_t* data;
  size_t byte_size;
};

class Gguf {
 public:
  Gguf(const uint8_t* data, size_t size);

  const std::vector<Metadata>& metadata() const { return metadata_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Metadata* find(std::string_view key) const;          // nullptr when absent
  const Tensor* find_tensor(const std::string& name) const;  // nullptr when absent

  // Typed access; Error naming the key when it is missing or of another type.
  std::string text(std::string_view key) const;
  uint64_t integer(std::string_view key) const;
  uint64_t integer_or(std::string_view key, uint64_t fallback) const;
  double real(std::string_view key) const;
  double real_or(std::string_view key, double fallback) const;

 private:
  void check_layout() const;

  std::vector<Metadata> metadata_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> keys_;
  std::unordered_map<std::string, size_t> names_;
};

}  // namespace assay
