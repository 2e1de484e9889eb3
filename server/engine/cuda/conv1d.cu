// conv1d: the depthwise causal convolution in front of a gated delta layer, then SiLU; one thread a channel of a row.
//
// A row sees the rows of its own segment in the pass, and before them those that the
// slot keeps; before position 0 there is nothing.
#include "delta.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    convolve(const float* __restrict__ x, int stride, const float* __restrict__ weight, DeltaView view, DeltaPass pass,
             float* __restrict__ out) {
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x), row = static_cast<int>(blockIdx.y);
  if (channel >= view.channels) return;
  const DeltaSegment segment = pass.segments[pass.segment_of[row]];
  const int behind = row - segment.first, position = segment.position + behind, conv = view.shape.conv;
  const float* kept = view.slot(segment.slot) + view.at.rows;
  float total = 0.0f;
  for (int t = 0; t < conv; ++t) {
    const int back = conv - 1 - t;
    float value = 0.0f;
    if (back <= behind) {
      value = x[static_cast<int64_t>(row - back) * stride + channel];
    } else if (back <= position) {
      value = kept[static_cast<int64_t>((position - back) % (kRewind + conv - 1)) * view.channels + channel];
    }
    total = __fmaf_rn(weight[static_cast<int64_t>(t) * view.channels + channel], value, total);
  }
  out[static_cast<int64_t>(row) * view.channels + channel] = __fdiv_rn(total, 1.0f + exponential(-total));
}

}  // namespace

void conv1d(const float* x, int stride, const float* weight, const DeltaView& view, const DeltaPass& pass, float* out,
            cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((view.channels + kThreads - 1) / kThreads), static_cast<unsigned>(pass.rows));
  ASSAY_LAUNCH(convolve, grid, kThreads, 0, stream, x, stride, weight, view, pass, out);
}

}  // namespace assay::cuda
