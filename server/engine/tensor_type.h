// How the values of a row are stored.
//
// First ggml's types, as numbered in a GGUF file; then the row forms that
// safetensors are read into, whose numbers no file may name:
//   w4_f16, w4_bf16  a block of 128 values: the 16 bits of a scale, then four runs of 32 values, 16
//                    bytes each in Q4_0's nibble order; value = (nibble - 8) * scale
//   nvfp4            a block of 32 values: two E4M3 scales of 16 values each, then 16 bytes of E2M1
//                    nibbles in Q4_0's order; value = nibble * (scale / the tensor's factor)
// Every type's exact meaning is dequantise.h.
#pragma once

#include <cstdint>

namespace assay {

enum class TensorType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
  w4_f16 = 1000,
  w4_bf16 = 1001,
  nvfp4 = 1002
};

struct TypeTraits {
  const char* name;
  uint32_t block_values;  // values in a block
  uint32_t block_bytes;
};

// Error (unsupported), naming the type, when it is not one of TensorType.
TypeTraits traits(TensorType type);

// The same for a number that stands in a GGUF file, which is never that of a row form of safetensors.
TypeTraits file_traits(uint32_t number);

}  // namespace assay
