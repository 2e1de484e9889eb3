// The narrow floats in portable C++: IEEE halves, bit for bit what F16C computes, bfloat16 and E4M3.
//
// Widening is exact. Narrowing rounds to nearest, ties to even; kv_write, which
// narrows to halves, clamps to the largest finite one first.
#pragma once

#include <cstdint>
#include <cstring>

namespace assay {

constexpr float kLargestHalf = 65504.0f;

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return bits_to_float(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // exact: subnormal or zero
  return bits_to_float(sign | float_to_bits(magnitude));
}

inline uint16_t float_to_half(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the fraction so that the hardware's rounding does ours.
    const float shifted = bits_to_float(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (float_to_bits(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

inline float bfloat_to_float(uint16_t bfloat) { return bits_to_float(static_cast<uint32_t>(bfloat) << 16); }

inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The 8-bit float of OCP with four bits of exponent: no infinity, one NaN of each sign.
inline float e4m3_to_float(uint8_t e4m3) {
  const uint32_t sign = static_cast<uint32_t>(e4m3 & 0x80u) << 24;
  const uint32_t magnitude = e4m3 & 0x7fu;
  if (magnitude == 0x7f) return bits_to_float(sign | 0x7fc00000u);
  if (magnitude >= 8) return bits_to_float(sign | ((magnitude << 20) + (120u << 23)));
  return bits_to_float(sign | float_to_bits(static_cast<float>(magnitude) * 0x1p-9f));
}

}  // namespace assay
