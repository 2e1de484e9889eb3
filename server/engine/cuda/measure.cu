// What the device can do at best: copies, reads, and int8 matrix products, timed with events.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "../border.h"
#include "assay_cuda.cuh"
#include "device_name.cuh"
#include "matrix.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;

class Event {
 public:
  Event() { ASSAY_CUDA(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Median seconds of `work`, after one that is not counted.
template <typename Work>
double median_seconds(int repeats, const Stream& stream, const Work& work) {
  if (repeats < 1) bad_argument("no repeats");
  const Event begin, end;
  std::vector<double> seconds;
  work();
  for (int i = 0; i < repeats; ++i) {
    float milliseconds = 0.0f;
    ASSAY_CUDA(cudaEventRecord(begin.get(), stream.get()));
    work();
    ASSAY_CUDA(cudaEventRecord(end.get(), stream.get()));
    ASSAY_CUDA(cudaEventSynchronize(end.get()));
    ASSAY_CUDA(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    seconds.push_back(static_cast<double>(milliseconds) * 1e-3);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[static_cast<size_t>(repeats / 2)];
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  ASSAY_CUDA(cudaDeviceGetAttribute(&value, which, kDevice));
  return value;
}

// Reads everything; writes only what never happens, so that nothing is optimised away.
__global__ void __launch_bounds__(kThreads) read_words(const uint4* __restrict__ words, int64_t count, uint32_t* out) {
  uint32_t seen = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
#pragma unroll 8
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 word = __ldg(words + i);
    seen |= word.x | word.y | word.z | word.w;
  }
  if (seen != 0) *out = seen;
}

constexpr int kChains = 4;  // independent products under way in a warp

__global__ void __launch_bounds__(1024) multiply(int products, int* out) {
  int totals[kChains][4] = {};
  const uint32_t a[4] = {threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3};
  const uint32_t b[2] = {threadIdx.x + 4, threadIdx.x + 5};
  for (int i = 0; i < products; i += kChains) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) product_int8(totals[chain], a, b, totals[chain]);
  }
  int seen = 0;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) seen += totals[chain][0] + totals[chain][3];
  if (seen == 1 << 30) *out = seen;
}

double read_seconds(uint64_t bytes, int repeats) {
  use_device(nullptr);
  const Stream stream;
  const DeviceArray<uint4> words(bytes / sizeof(uint4) + 1);
  const DeviceArray<uint32_t> out(1);
  stream.zero(words.data(), words.bytes());
  const dim3 grid(static_cast<unsigned>(8 * attribute(cudaDevAttrMultiProcessorCount)));
  return median_seconds(repeats, stream, [&] {
    ASSAY_LAUNCH(read_words, grid, kThreads, 0, stream.get(), words.data(), static_cast<int64_t>(words.count()),
                 out.data());
  });
}

}  // namespace
}  // namespace assay::cuda

using namespace assay::cuda;

double assay_read_seconds(uint64_t bytes, int32_t, int32_t repeats) {
  double seconds = -1.0;
  assay::guarded(nullptr, 0, [&] { seconds = read_seconds(bytes, repeats); });
  return seconds;
}

int32_t assay_device_describe(assay_device* device, char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    use_device(nullptr);
    cudaDeviceProp properties;
    ASSAY_CUDA(cudaGetDeviceProperties(&properties, kDevice));
    std::snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    device->clock_khz = attribute(cudaDevAttrClockRate);
    device->compute_major = attribute(cudaDevAttrComputeCapabilityMajor);
    device->compute_minor = attribute(cudaDevAttrComputeCapabilityMinor);
    size_t available = 0, total = 0;
    ASSAY_CUDA(cudaMemGetInfo(&available, &total));
    device->memory_bytes = total;
    device->free_bytes = available;
  });
}

int32_t assay_device_copy_seconds(uint64_t bytes, int32_t repeats, double* seconds, char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    use_device(nullptr);
    const Stream stream;
    const DeviceArray<uint8_t> from(bytes), to(bytes);
    stream.zero(from.data(), from.bytes());
    *seconds = median_seconds(repeats, stream, [&] {
      ASSAY_CUDA(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()));
    });
  });
}

int32_t assay_device_matrix_seconds(int32_t products, int32_t warps, int32_t repeats, double* seconds, uint64_t* total,
                                    char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    use_device(nullptr);
    if (products < kChains || warps < 1 || warps > 32) assay::bad_argument("products or warps out of range");
    const Stream stream;
    const DeviceArray<int> out(1);
    const unsigned blocks = static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount));
    *total = static_cast<uint64_t>(products / kChains) * kChains * static_cast<uint64_t>(warps) * blocks;
    *seconds = median_seconds(repeats, stream, [&] {
      ASSAY_LAUNCH(multiply, dim3(blocks), static_cast<unsigned>(warps) * kWarp, 0, stream.get(),
                   products / kChains * kChains, out.data());
    });
  });
}
