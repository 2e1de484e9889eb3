// What a stored row means: the plain definition of every type, which the kernels are held to.
//
// Bit for bit what the `gguf` package makes of ggml's types, and what
// compressed-tensors makes of the row forms of safetensors: W4A16 as a product
// in the type of its scales, NVFP4 as a float product rounded to bfloat16.
// (The processor's kernels, and every linear operation, keep both products unrounded.)
#pragma once

#include <cstdint>

#include "tensor_type.h"

namespace assay {

// out[columns] of a row; columns a multiple of the type's block. `factor` is the tensor's (gguf.h).
void dequantise(TensorType type, float factor, const uint8_t* row, int columns, float* out);

}  // namespace assay
