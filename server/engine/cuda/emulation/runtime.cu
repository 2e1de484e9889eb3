#include "runtime.cuh"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "memory.cuh"
#include "shared.cuh"

namespace emulation {

using Work = std::function<cudaError_t()>;

struct Graph {
  std::vector<Work> work;
};

struct Stream {
  bool capturing = false;
  std::vector<Work> captured;
};

struct Event {
  std::chrono::steady_clock::time_point at;
};

namespace {

cudaError_t last = cudaSuccess;
std::string message;

cudaError_t failed(cudaError_t error, const std::string& why) {
  last = error;
  message = why;
  return error;
}

cudaError_t submit_work(Stream* stream, Work work) {
  if (stream != nullptr && stream->capturing) {
    stream->captured.push_back(std::move(work));
    return cudaSuccess;
  }
  return work();
}

bool on_device(const void* pointer, size_t size) { return inside(pointer, size); }

cudaError_t checked_copy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDeviceToHost && !on_device(to, size)) {
    return failed(cudaErrorInvalidValue, "a copy to outside of a device allocation");
  }
  if (kind != cudaMemcpyHostToDevice && !on_device(from, size)) {
    return failed(cudaErrorInvalidValue, "a copy from outside of a device allocation");
  }
  if (size != 0) std::memcpy(to, from, size);
  return cudaSuccess;
}

}  // namespace

cudaError_t submit(Stream* stream, dim3 grid, dim3 block, size_t dynamic_bytes, const char* name,
                   const std::function<void()>& body) {
  if (dynamic_bytes > kMostDynamicBytes) {
    return failed(cudaErrorInvalidValue, std::string(name) + ": more shared memory than a device has");
  }
  return submit_work(stream, [=] {
    const std::string failure = run(grid, block, dynamic_bytes, name, body);
    return failure.empty() ? cudaSuccess : failed(cudaErrorLaunchFailure, failure);
  });
}

}  // namespace emulation

using emulation::failed;
using emulation::submit_work;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated on the processor"};
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrClockRate:
      *value = 1000000;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 1;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 6;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(emulation::kMostDynamicBytes);
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  *total = size_t{64} << 30;
  *available = *total - emulation::allocated_bytes();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t size) {
  *pointer = emulation::allocate(size);
  return *pointer != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation, "out of memory");
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr || emulation::release(pointer)) return cudaSuccess;
  return failed(cudaErrorInvalidValue, "what is freed was not allocated");
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  *pointer = std::malloc(size);
  return *pointer != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation, "out of memory");
}

cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  return submit_work(stream, [=] { return emulation::checked_copy(to, from, size, kind); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return submit_work(stream, [=] {
    if (!emulation::inside(to, size)) return failed(cudaErrorInvalidValue, "memory set outside of an allocation");
    std::memset(to, value, size);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new emulation::Stream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream != nullptr && stream->capturing ? failed(cudaErrorInvalidValue, "a captured stream is waited for")
                                                : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capturing) return failed(cudaErrorInvalidValue, "the stream is captured already");
  stream->capturing = true;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->capturing) return failed(cudaErrorInvalidValue, "the stream is not captured");
  *graph = new emulation::Graph{std::move(stream->captured)};
  stream->captured.clear();
  stream->capturing = false;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new emulation::Graph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const emulation::Work& work : executable->work) {
    const cudaError_t error = work();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return cudaGraphDestroy(executable); }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new emulation::Event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = emulation::last;
  emulation::last = cudaSuccess;
  return error;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : emulation::message.c_str();
}
