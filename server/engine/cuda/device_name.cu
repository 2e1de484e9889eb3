#include "device_name.cuh"

#include <cstring>

namespace assay::cuda {

const std::string& device_isa() {
  static const std::string name = [] {
#ifdef ASSAY_EMULATED
    return std::string("cuda-emulated");
#else
    int count = 0;
    ASSAY_CUDA(cudaGetDeviceCount(&count));
    if (count == 0) throw Error(ASSAY_UNSUPPORTED, "no CUDA device: run nvidia-smi");
    ASSAY_CUDA(cudaSetDevice(kDevice));
    int major = 0, minor = 0;
    ASSAY_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, kDevice));
    ASSAY_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, kDevice));
    const std::string found = "cuda-sm_" + std::to_string(10 * major + minor);
    if (major < 8) {
      throw Error(ASSAY_UNSUPPORTED, "the GPU is of the generation '" + found + "'; sm_80 and newer are served");
    }
    return found;
#endif
  }();
  return name;
}

const std::string& use_device(const char* isa) {
  const std::string& name = device_isa();
  ASSAY_CUDA(cudaSetDevice(kDevice));
  if (isa != nullptr && name != isa && std::strcmp(isa, "cuda") != 0) {
    unsupported("this device has no instruction set '" + std::string(isa) + "', it is '" + name + "'");
  }
  return name;
}

}  // namespace assay::cuda
