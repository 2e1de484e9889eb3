// Which device computes, and what its instruction set is called.
#pragma once

#include <string>

#include "check.cuh"

namespace assay::cuda {

constexpr int kDevice = 0;  // the first one the driver shows; CUDA_VISIBLE_DEVICES chooses

// "cuda-sm_90" and so on; "cuda-emulated" on the processor. Error when no device can be used.
const std::string& device_isa();

// Makes the device the calling thread's, and returns its name. Error (unsupported) when `isa` is
// neither nullptr nor "cuda" nor its name.
const std::string& use_device(const char* isa);

}  // namespace assay::cuda
