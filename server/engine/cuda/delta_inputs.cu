// delta_inputs: queries and keys of length 1, and the gates of each value head; one block of threads a row.
//
// A warp takes a head: x / sqrt(sum x^2 + 1e-6). The logarithm in softplus is the series
// of 2 artanh(y / (2 + y)), whose eight terms are exact to a float for y in [0, 1].
#include "delta.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr float kEpsilon = 1e-6f;

// log(1 + y), y in [0, 1]
__device__ __forceinline__ float log_of_one_plus(float y) {
  const float s = __fdiv_rn(y, 2.0f + y), z = s * s;
  float p = 1.0f / 15.0f;
  p = __fmaf_rn(p, z, 1.0f / 13.0f);
  p = __fmaf_rn(p, z, 1.0f / 11.0f);
  p = __fmaf_rn(p, z, 1.0f / 9.0f);
  p = __fmaf_rn(p, z, 1.0f / 7.0f);
  p = __fmaf_rn(p, z, 1.0f / 5.0f);
  p = __fmaf_rn(p, z, 1.0f / 3.0f);
  p = __fmaf_rn(p, z, 1.0f);
  return 2.0f * s * p;
}

// log(1 + e^x)
__device__ __forceinline__ float softplus(float x) {
  return (x > 0.0f ? x : 0.0f) + log_of_one_plus(exponential(-fabs(x)));
}

__global__ void __launch_bounds__(kThreads)
    prepare_rows(float* x, const float* __restrict__ a, const float* __restrict__ b, int stride,
                 const float* __restrict__ decay, const float* __restrict__ dt, DeltaView view,
                 float2* __restrict__ gates) {
  const int row = static_cast<int>(blockIdx.x), width = view.shape.key_dim, key_heads = view.shape.key_heads;
  const float shrink = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(width)));
  for (int head = warp_index(); head < 2 * key_heads; head += kWarps) {
    float* values = x + static_cast<int64_t>(row) * view.channels + head * width;
    float squares = 0.0f;
    for (int d = lane_index(); d < width; d += kWarp) squares = __fmaf_rn(values[d], values[d], squares);
    float factor = __fdiv_rn(1.0f, __fsqrt_rn(warp_sum(squares) + kEpsilon));
    if (head < key_heads) factor *= shrink;
    for (int d = lane_index(); d < width; d += kWarp) values[d] *= factor;
  }
  const int heads = view.shape.value_heads;
  for (int head = static_cast<int>(threadIdx.x); head < heads; head += kThreads) {
    const int64_t at = static_cast<int64_t>(row) * stride + head;
    gates[static_cast<int64_t>(row) * heads + head] =
        make_float2(decay[head] * softplus(a[at] + dt[head]), __fdiv_rn(1.0f, 1.0f + exponential(-b[at])));
  }
}

}  // namespace

void delta_inputs(float* x, const float* a, const float* b, int stride, const float* decay, const float* dt,
                  const DeltaView& view, int rows, float2* gates, cudaStream_t stream) {
  ASSAY_LAUNCH(prepare_rows, dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, x, a, b, stride, decay, dt, view,
               gates);
}

}  // namespace assay::cuda
