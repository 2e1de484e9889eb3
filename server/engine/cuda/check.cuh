// Checked CUDA calls, launches and allocations: what fails becomes the engine's error.
//
// The message names the call, file and line, what CUDA says and what to try next.
// Host code only. Memory is what cudaMalloc gives, one allocation an array but for those of a DeviceArena.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../error.h"
#include "../tiles.h"
#include "device.cuh"

namespace assay::cuda {

// Throws when `error` is one; takes CUDA's sticky last error with it.
void check(cudaError_t error, const char* call, const char* file, int line);

#define ASSAY_CUDA(call) ::assay::cuda::check((call), #call, __FILE__, __LINE__)

// An array in device memory, freed on scope exit.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t count) : count_(count) {
    if (count != 0) ASSAY_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  T* data() const { return data_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

// Many arrays in one allocation of a size known beforehand: the driver rounds each of its own up to 2 MiB. The
// emulation gives each array, and what aligns it, an allocation, so that it sees where one ends.
class DeviceArena {
 public:
  DeviceArena() = default;
#ifdef ASSAY_EMULATED
  explicit DeviceArena(size_t bytes) : left_(bytes) {}
#else
  explicit DeviceArena(size_t bytes) : left_(bytes), all_(bytes) {}
#endif

  template <typename T>
  T* take(size_t count) {
    const size_t bytes = count * sizeof(T), aligned = aligned_bytes(bytes);
    if (aligned > left_) throw Error(ASSAY_INTERNAL, "more device memory was asked for than planned");
    left_ -= aligned;
#ifdef ASSAY_EMULATED
    parts_.emplace_back(bytes);
    uint8_t* const data = parts_.back().data();
    parts_.emplace_back(aligned - bytes);
#else
    uint8_t* const data = all_.data() + all_.bytes() - left_ - aligned;
#endif
    return reinterpret_cast<T*>(data);
  }

 private:
  size_t left_ = 0;
#ifdef ASSAY_EMULATED
  std::vector<DeviceArray<uint8_t>> parts_;
#else
  DeviceArray<uint8_t> all_;
#endif
};

// An array that the host writes and the device copies from without a detour.
template <typename T>
class PinnedArray {
 public:
  explicit PinnedArray(size_t count) {
    if (count == 0) return;
    ASSAY_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&data_), count * sizeof(T), cudaHostAllocDefault));
  }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;

  T* data() const { return data_; }
  T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
};

class Stream {
 public:
  Stream() { ASSAY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const { ASSAY_CUDA(cudaStreamSynchronize(stream_)); }

  template <typename T>
  void upload(T* to, const T* from, size_t count) const {
    if (count != 0) ASSAY_CUDA(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyHostToDevice, stream_));
  }
  template <typename T>
  void download(T* to, const T* from, size_t count) const {
    if (count != 0) ASSAY_CUDA(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream_));
  }
  void zero(void* to, size_t bytes) const {
    if (bytes != 0) ASSAY_CUDA(cudaMemsetAsync(to, 0, bytes, stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

#if defined(__CUDACC__) || defined(ASSAY_EMULATED)

constexpr size_t kPlainSharedBytes = size_t{48} << 10;  // dynamic shared memory that needs no asking

template <typename... Parameters, typename... Arguments>
void launch(const char* name, const char* file, int line, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
            size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
  if (shared_bytes > kPlainSharedBytes) {
    const int bytes = static_cast<int>(shared_bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name, file, line);
  }
#ifdef ASSAY_EMULATED
  const cudaError_t error = emulation::submit(stream, grid, dim3(threads), shared_bytes, name,
                                              [=] { kernel(static_cast<Parameters>(arguments)...); });
  check(error, name, file, line);
#else
  kernel<<<grid, threads, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  check(cudaGetLastError(), name, file, line);
#endif
}

// ASSAY_LAUNCH((kernel<arguments>), grid, threads, dynamic shared bytes, stream, arguments...)
#define ASSAY_LAUNCH(kernel, grid, threads, shared_bytes, stream, ...) \
  ::assay::cuda::launch(#kernel, __FILE__, __LINE__, kernel, grid, threads, shared_bytes, stream, __VA_ARGS__)

#endif

}  // namespace assay::cuda
