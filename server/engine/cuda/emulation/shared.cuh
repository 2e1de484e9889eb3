// A block's shared memory, every access checked.
//
// Each 32-bit word knows who wrote and who read it since which barrier. An error
// is: an access past the end of an array; a word read before this block wrote it
// (a copy still under way has not written it); a word read or written by one
// thread after another wrote it, or written after another read it, without a
// barrier between them (of the block, or of the warp when both are in it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fibers.cuh"

namespace emulation {

constexpr size_t kStaticBytes = size_t{48} << 10;     // what a kernel may declare
constexpr size_t kMostDynamicBytes = size_t{99} << 10;  // what every device served has

void shared_plan(size_t dynamic_bytes);
void shared_begin();
size_t dynamic_bytes();
uint8_t* shared_memory();
void shared_read(size_t offset, size_t size);
void shared_write(size_t offset, size_t size);

// Asynchronous copies of the running thread: pending until their group is waited for.
void copy_begin(size_t offset, const void* source);  // 16 bytes
void copy_commit();
void copy_wait(int groups_left);

}  // namespace emulation

template <typename T>
class Shared {
 public:
  Shared() = default;  // of nothing, to be assigned
  Shared(size_t offset, size_t count) : offset_(offset), count_(count) {
    static_assert(sizeof(T) % 4 == 0, "shared memory is watched in words");
  }

  T get(int index) const {
    T value;
    emulation::shared_read(at(index), sizeof(T));
    std::memcpy(&value, emulation::shared_memory() + at(index), sizeof(T));
    return value;
  }

  void put(int index, T value) const {
    emulation::shared_write(at(index), sizeof(T));
    std::memcpy(emulation::shared_memory() + at(index), &value, sizeof(T));
  }

  template <typename U>
  Shared<U> as() const {
    return Shared<U>(offset_, count_ * sizeof(T) / sizeof(U));
  }

  Shared<T> part(int first, int count) const {
    if (first < 0 || count < 0 || static_cast<size_t>(first) + static_cast<size_t>(count) > count_) {
      emulation::fault("a part past the end of a shared array of " + std::to_string(count_));
    }
    return Shared<T>(offset_ + static_cast<size_t>(first) * sizeof(T), static_cast<size_t>(count));
  }

  size_t at(int index) const {
    if (index < 0 || static_cast<size_t>(index) >= count_) {
      emulation::fault("index " + std::to_string(index) + " of a shared array of " + std::to_string(count_));
    }
    return offset_ + static_cast<size_t>(index) * sizeof(T);
  }

 private:
  size_t offset_ = 0;
  size_t count_ = 0;
};

// Hands out 16-byte-aligned arrays of a region, in one order for every thread.
class SharedArena {
 public:
  SharedArena(size_t begin, size_t size) : next_(begin), end_(begin + size) {}

  template <typename T>
  Shared<T> take(int count) {
    const Shared<T> taken(next_, static_cast<size_t>(count));
    next_ += (static_cast<size_t>(count) * sizeof(T) + 15) & ~size_t{15};
    if (next_ > end_) emulation::fault("the shared memory asked for at the launch is too small");
    return taken;
  }

 private:
  size_t next_;
  size_t end_;
};

#define ASSAY_STATIC_SHARED(name, bytes)                                                   \
  static_assert((bytes) <= emulation::kStaticBytes, "static shared memory ends at 48 KB"); \
  SharedArena name(0, bytes)
#define ASSAY_DYNAMIC_SHARED(name) SharedArena name(emulation::kStaticBytes, emulation::dynamic_bytes())
