#include "check.cuh"

#include <cstring>

namespace assay::cuda {
namespace {

const char* hint(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) {
    return "device memory is short: serve fewer slots, a shorter context or int8 keys and values";
  }
#ifndef ASSAY_EMULATED
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return "no usable GPU: run nvidia-smi; the driver must serve CUDA 13";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "this library has no code for the GPU: sm_80 or newer and a driver of CUDA 13 are needed";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
      return "a kernel failed; the device must be opened again. Run compute-sanitizer on server/gpu-check to see where";
    default:
      break;
  }
#endif
  return "run server/gpu-check to test this device";
}

}  // namespace

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  const char* slash = std::strrchr(file, '/');
  const std::string message = std::string(call) + " at " + (slash == nullptr ? file : slash + 1) + ":" +
                              std::to_string(line) + ": " + cudaGetErrorString(error) + " (" + hint(error) + ")";
  cudaGetLastError();
  throw Error(error == cudaErrorMemoryAllocation ? ASSAY_NO_MEMORY : ASSAY_INTERNAL, message);
}

}  // namespace assay::cuda
