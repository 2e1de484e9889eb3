// The arithmetic that the decode and the prefill form of qlinear share.
//
// The blocks of a row are cut into kSegments runs of equal length (the last ones
// may be shorter or empty), by the number of columns alone. A run is one chain of
// fused steps, from zero, in the order of its blocks:
//   product = dot(q), and where the block is refined fma(dot(residual), 1 / 256, product)
//   total = fma(scale, fma(minimum, sum, weight scale * product), total)
// (without the inner step where the type has no minimum; for matrices of floats
// total = fma(weight, x, total) column by column). The output is the sum of the runs in
// their order. Dots are exact, so it does not matter which instruction makes them.
#pragma once

#include "kernels.cuh"
#include "matrix.cuh"

namespace assay::cuda {

constexpr int kSegments = 8;

__host__ __device__ constexpr int segment_blocks(int blocks) { return (blocks + kSegments - 1) / kSegments; }

// What a row's weight scale is multiplied by: Q4_0's nibbles are used at 16 times their value.
template <TensorType kType>
constexpr float kUnit = kType == TensorType::q4_0 ? 0.0625f : 1.0f;

struct WeightScale {
  float scale;
  float minimum;
};

template <TensorType kType>
__device__ __forceinline__ WeightScale weight_scale(uint32_t bits) {
  const float minimum = Layout<kType>::kMinimum ? half_value(static_cast<uint16_t>(bits >> 16)) : 0.0f;
  return {half_value(static_cast<uint16_t>(bits)) * kUnit<kType>, minimum};
}

// Four columns of a word as signed bytes: of a 4-bit type the low or the high nibbles.
template <TensorType kType>
__device__ __forceinline__ uint32_t low_columns(uint32_t word) {
  return kType == TensorType::q4_1 ? word & 0x0f0f0f0fu : (word << 4) & 0xf0f0f0f0u;
}

template <TensorType kType>
__device__ __forceinline__ uint32_t high_columns(uint32_t word) {
  return kType == TensorType::q4_1 ? (word >> 4) & 0x0f0f0f0fu : word & 0xf0f0f0f0u;
}

// The sign of a stored activation scale says whether the block is refined.
__device__ __forceinline__ bool is_refined(float stored_scale) { return (__float_as_uint(stored_scale) >> 31) != 0; }

__device__ __forceinline__ float refined_product(float product, float residual) {
  return __fmaf_rn(residual, 0x1p-8f, product);
}

template <TensorType kType>
__device__ __forceinline__ float add_block(float total, float product, const WeightScale& weight, float2 activation) {
  float value = weight.scale * product;
  if (Layout<kType>::kMinimum) value = __fmaf_rn(weight.minimum, activation.y, value);
  return __fmaf_rn(fabs(activation.x), value, total);
}

}  // namespace assay::cuda
