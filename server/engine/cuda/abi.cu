// assay_engine.h for the device.
#include "device_name.cuh"
#include "engine.cuh"

namespace assay {

using Engine = cuda::Engine;
using Opening = cuda::Opening;

inline const char* detect_isa() {
  try {
    return cuda::device_isa().c_str();
  } catch (const Error&) {
    return "cuda";  // no device: assay_open says why
  }
}

}  // namespace assay

#include "../abi_calls.h"
