// The arithmetic that the decode and the prefill form of qlinear share.
//
// The blocks of a row are cut into kSegments runs of equal length (the last ones may be
// shorter or empty) at borders of the type's groups, by the number of columns alone. A run is
// one chain of fused steps, from zero, in the order of its blocks:
//   product = dot(q), and where the block is refined fma(dot(residual), 1 / 256, product)
//   value = weight scale * product; where the halves of the block have scales of their own
//           fma(second scale, second product, first scale * first); with a minimum
//           fma(minimum, sum, value)
//   total = fma(scale, value, total)
// (for matrices of floats total = fma(weight, x, total) column by column). The output is the
// sum of the runs in their order. Dots are exact, and so are the scales of a K-quant's blocks,
// so it does not matter which instruction makes them.
#pragma once

#include "matrix.cuh"
#include "unpack.cuh"

namespace assay::cuda {

constexpr int kSegments = 8;

template <TensorType kType>
__host__ __device__ constexpr int segment_blocks(int blocks) {
  constexpr int kGroup = Layout<kType>::kGroup;
  return (blocks / kGroup + kSegments - 1) / kSegments * kGroup;
}

// The sign of a stored activation scale says whether the block is refined.
__device__ __forceinline__ bool is_refined(float stored_scale) { return (__float_as_uint(stored_scale) >> 31) != 0; }

__device__ __forceinline__ float refined_product(float product, float residual) {
  return __fmaf_rn(residual, 0x1p-8f, product);
}

// The dot products of a block as they were accumulated, on top of kFloatDisguise; the second one where its halves have
// scales of their own.
struct Dots {
  int first;
  int second;
};

// The scales of a row's block, and what takes the disguise off a dot while it is multiplied.
struct RowScale {
  float first;
  float second;
  float shift;
};

__device__ __forceinline__ RowScale row_scale(const WeightScale& weight) {
  return {weight.first, weight.second, weight.first * -kDisguise};
}

// Scale times dot, rounded once: in one step, since the shift is exact for scales of up to 22 bits (all but NVFP4's).
template <TensorType kType>
__device__ __forceinline__ float scaled(const RowScale& weight, int disguised) {
  if (kType == TensorType::nvfp4) return weight.first * exact_float(disguised);
  return __fmaf_rn(weight.first, __int_as_float(disguised), weight.shift);
}

// A block's dots in its row's scales.
template <TensorType kType>
__device__ __forceinline__ float block_value(const RowScale& weight, const Dots& dots) {
  const float value = scaled<kType>(weight, dots.first);
  if (Layout<kType>::kScaling != Scaling::halves) return value;
  return __fmaf_rn(weight.second, exact_float(dots.second), value);
}

// The same for a block whose residual has dots too.
template <TensorType kType>
__device__ __forceinline__ float block_value(const RowScale& weight, const Dots& dots, const Dots& residual) {
  const float value = weight.first * refined_product(exact_float(dots.first), exact_float(residual.first));
  if (Layout<kType>::kScaling != Scaling::halves) return value;
  return __fmaf_rn(weight.second, refined_product(exact_float(dots.second), exact_float(residual.second)), value);
}

template <TensorType kType>
__device__ __forceinline__ float add_block(float total, float value, const RowScale& weight, float2 activation) {
  if (Layout<kType>::kScaling == Scaling::minimum) value = __fmaf_rn(weight.second, activation.y, value);
  return __fmaf_rn(fabs(activation.x), value, total);
}

}  // namespace assay::cuda
