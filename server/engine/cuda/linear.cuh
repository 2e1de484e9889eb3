// The arithmetic that the decode and the prefill form of qlinear share.
//
// The blocks of a row are cut into kSegments runs of equal length (the last ones may be
// shorter or empty) at borders of the type's groups, by the number of columns alone. A run is
// one chain of fused steps, from zero, in the order of its blocks:
//   product = dot(q), and where the block is refined fma(dot(residual), 1 / 256, product)
//   value = weight scale * product; with a minimum fma(minimum, sum, value); where the halves of
//           the block have scales of their own fma(second scale, second product, first scale * first)
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

// The dot products of a block; the second one where its halves have scales of their own.
struct Product {
  float first;
  float second;
};

template <TensorType kType>
__device__ __forceinline__ Product refined_product(const Product& product, const Product& residual) {
  constexpr bool kHalves = Layout<kType>::kScaling == Scaling::halves;
  return {refined_product(product.first, residual.first),
          kHalves ? refined_product(product.second, residual.second) : 0.0f};
}

template <TensorType kType>
__device__ __forceinline__ float add_block(float total, const Product& product, const WeightScale& weight,
                                           float2 activation) {
  constexpr Scaling kScaling = Layout<kType>::kScaling;
  float value = weight.first * product.first;
  if (kScaling == Scaling::minimum) value = __fmaf_rn(weight.second, activation.y, value);
  if (kScaling == Scaling::halves) value = __fmaf_rn(weight.second, product.second, value);
  return __fmaf_rn(fabs(activation.x), value, total);
}

}  // namespace assay::cuda
