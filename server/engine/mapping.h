// Memory straight from the kernel, released on scope exit.
//
// Mapping is a read-only view of a file. Pages is zeroed anonymous memory in
// 2 MiB-aligned, huge-page-friendly form: weights and key/value caches are read
// front to back, and 4 KiB pages would cost a TLB miss each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace assay {

class Mapping {
 public:
  explicit Mapping(const std::string& path);  // Error: missing, unreadable, not a regular file, empty
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Bytes of a Mapping that will be read soon, as far as they lie in one: the kernel may read them ahead.
void will_read(const uint8_t* data, size_t size);

// Bytes of a Mapping that will not be read again: their whole pages leave this process's memory.
void done_reading(const uint8_t* data, size_t size);

class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t size);  // Error: no memory. Pages become resident when first touched.
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void* base_ = nullptr;
  size_t reserved_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace assay
