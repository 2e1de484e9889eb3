// A position in bytes that are hostile until proven whole: it cannot leave them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "error.h"

namespace assay {

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

}  // namespace assay
