// What single operations are run on: a device with a stream, and arrays that go and come on it.
#pragma once

#include "../border.h"
#include "check.cuh"
#include "device_name.cuh"

namespace assay::cuda {

class Bench {
 public:
  explicit Bench(const char* isa) { use_device(isa); }

  cudaStream_t stream() const { return stream_.get(); }

  template <typename T>
  DeviceArray<T> given(const T* values, size_t count) const {
    DeviceArray<T> array(count);
    stream_.upload(array.data(), values, count);
    stream_.wait();
    return array;
  }

  template <typename T>
  DeviceArray<T> zeros(size_t count) const {
    DeviceArray<T> array(count);
    stream_.zero(array.data(), array.bytes());
    return array;
  }

  template <typename T>
  void take(T* values, const DeviceArray<T>& array) const {
    stream_.download(values, array.data(), array.count());
    stream_.wait();
  }

 private:
  Stream stream_;
};

template <typename Body>
int32_t with_bench(const char* isa, const Body& body) {
  return guarded(nullptr, 0, [&] { body(Bench(isa)); });
}

inline size_t size_of(int a) { return static_cast<size_t>(a); }

}  // namespace assay::cuda
