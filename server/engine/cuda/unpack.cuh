// One row's block of 32 columns out of its tile: bytes for the integer products, and scales.
//
// Word t (0 to 3) of a 4-, 5- or 6-bit row becomes two words of four signed bytes: columns 4t
// to 4t + 3 and 16 + 4t to 16 + 4t + 3. Where a type is signed, its integers less half their
// range are placed at the top of the byte (so that the byte's sign is theirs, without a
// subtraction) and count 16, 8 or 4 times; kUnit takes that back, exactly.
// High bits: a word has bit t + 4 h of byte j for column 16 h + 4t + j (5 bits); or word h has
// bits 2t and 2t + 1 of byte j (6 bits). The top bit is stored inverted where the type is signed.
// NVFP4: the low 16 bits of a word have three bits of magnitude a nibble for columns 4t to
// 4t + 3, the high ones for the others; the signs of the first lie in bit 7 of each byte, those
// of the second in bit 3. Its integers are twice the E2M1 values.
#pragma once

#include "kernels.cuh"

namespace assay::cuda {

template <TensorType kType>
constexpr float kUnit = Layout<kType>::kW4 || kType == TensorType::q4_0 ? 0.0625f
                        : kType == TensorType::q5_0                     ? 0.125f
                        : kType == TensorType::q6_k                     ? 0.25f
                        : kType == TensorType::nvfp4                    ? 0.5f
                                                                        : 1.0f;

// Scales of a block, the second one a minimum or that of columns 16 to 31 (Scaling).
struct WeightScale {
  float first;
  float second;
};

__device__ __forceinline__ float bfloat_value(uint32_t bits) { return __uint_as_float(bits << 16); }

// E4M3 without infinities: what lies between its bits is a half of 1 / 256 of its value.
__device__ __forceinline__ float e4m3_value(uint32_t byte) {
  const float nan = __uint_as_float(0x7fc00000u);
  if ((byte & 0x7fu) == 0x7fu) return nan;
  return half_value(static_cast<uint16_t>((byte & 0x80u) << 8 | (byte & 0x7fu) << 7)) * 256.0f;
}

template <TensorType kType>
__device__ __forceinline__ float inverse_factor(const Matrix& matrix) {
  return kType == TensorType::nvfp4 ? __fdiv_rn(1.0f, matrix.factor) : 1.0f;
}

// The row's header of a group.
template <TensorType kType>
struct Header {
  uint32_t words[Layout<kType>::kHeaderWords];

  __device__ __forceinline__ void load(const uint8_t* group, int lane) {
    using Form = Layout<kType>;
    const uint8_t* from = group + Form::kHeaderAt;
    if constexpr (Form::kHeaderBytes == 2) words[0] = __ldg(reinterpret_cast<const uint16_t*>(from) + lane);
    if constexpr (Form::kHeaderBytes == 4) words[0] = __ldg(reinterpret_cast<const uint32_t*>(from) + lane);
    if constexpr (Form::kHeaderBytes >= 16) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(from) + lane);
      words[0] = four.x;
      words[1] = four.y;
      words[2] = four.z;
      words[3] = four.w;
    }
    if constexpr (Form::kHeaderBytes == 18) {
      words[4] = __ldg(reinterpret_cast<const uint16_t*>(from + kPlaneBytes) + lane);
    }
  }

  // Of block `block` of the group; `inverse` is inverse_factor.
  __device__ __forceinline__ WeightScale scale(int block, float inverse) const {
    if constexpr (kType == TensorType::w4_bf16) return {bfloat_value(words[0]) * kUnit<kType>, 0.0f};
    if constexpr (kType == TensorType::nvfp4) {
      const float unit = inverse * kUnit<kType>;
      return {e4m3_value(words[0] & 0xffu) * unit, e4m3_value(words[0] >> 8 & 0xffu) * unit};
    }
    if constexpr (kType == TensorType::q4_k || kType == TensorType::q5_k) {
      const uint32_t low = (block < 4 ? words[1] : words[2]) >> (block % 4 * 8), high = words[3] >> (block * 4);
      const uint32_t scale = (low & 15u) | (high & 3u) << 4, minimum = (low >> 4 & 15u) | (high & 12u) << 2;
      return {half_value(static_cast<uint16_t>(words[0])) * static_cast<float>(scale),
              -(half_value(static_cast<uint16_t>(words[0] >> 16)) * static_cast<float>(minimum))};
    }
    if constexpr (kType == TensorType::q6_k) {
      const uint32_t left = block < 2 ? words[0] : words[1], right = block < 6 ? words[2] : words[3];
      const uint32_t pair = (block < 4 ? left : right) >> (block % 2 * 16);
      const float unit = half_value(static_cast<uint16_t>(words[4])) * kUnit<kType>;
      return {static_cast<float>(static_cast<int8_t>(pair)) * unit,
              static_cast<float>(static_cast<int8_t>(pair >> 8)) * unit};
    }
    constexpr bool kMinimum = Layout<kType>::kMinimum;
    const float scale = half_value(static_cast<uint16_t>(words[0])) * kUnit<kType>;
    return {scale, kMinimum ? half_value(static_cast<uint16_t>(words[0] >> 16)) : 0.0f};
  }
};

// E2M1 values, doubled, of the four nibbles below 16 bits whose signs are bit 7 of each byte of `signs`.
__device__ __forceinline__ uint32_t e2m1_bytes(uint32_t magnitudes, uint32_t signs) {
  const uint32_t values = __byte_perm(0x03020100u, 0x0c080604u, magnitudes & 0x7777u);
  const uint32_t negative = signs >> 7 & 0x01010101u;
  return (values ^ negative * 0xffu) + negative;  // a zero has no sign, so no byte carries
}

// Columns 4t to 4t + 3 of a row's word t and its high words.
template <TensorType kType>
__device__ __forceinline__ uint32_t low_columns(uint32_t word, uint32_t high, int t) {
  if constexpr (kType == TensorType::q5_0) return (word << 3 & 0x78787878u) | (high << (7 - t) & 0x80808080u);
  if constexpr (kType == TensorType::q6_k) return (word << 2 & 0x3c3c3c3cu) | (high << (6 - 2 * t) & 0xc0c0c0c0u);
  if constexpr (kType == TensorType::nvfp4) return e2m1_bytes(word, word);
  if constexpr (kUnit<kType> != 1.0f) return word << 4 & 0xf0f0f0f0u;
  const uint32_t nibbles = word & 0x0f0f0f0fu;
  return Layout<kType>::kHighWords == 0 ? nibbles : nibbles | (high << (4 - t) & 0x10101010u);
}

// Columns 16 + 4t to 16 + 4t + 3; `high` is the second high word of a 6-bit type.
template <TensorType kType>
__device__ __forceinline__ uint32_t high_columns(uint32_t word, uint32_t high, int t) {
  if constexpr (kType == TensorType::q5_0) return (word >> 1 & 0x78787878u) | (high << (3 - t) & 0x80808080u);
  if constexpr (kType == TensorType::q6_k) return (word >> 2 & 0x3c3c3c3cu) | (high << (6 - 2 * t) & 0xc0c0c0c0u);
  if constexpr (kType == TensorType::nvfp4) return e2m1_bytes(word >> 16, word << 4);
  if constexpr (kUnit<kType> != 1.0f) return word & 0xf0f0f0f0u;
  const uint32_t nibbles = word >> 4 & 0x0f0f0f0fu;
  return Layout<kType>::kHighWords == 0 ? nibbles : nibbles | (high >> t & 0x10101010u);
}

}  // namespace assay::cuda
