// delta_keep: what a slot keeps of a pass for the next one; one block of threads a row.
#include "delta.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    keep_rows(const float* __restrict__ given, int stride, const float* __restrict__ x, DeltaView view,
              DeltaPass pass) {
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const DeltaSegment segment = pass.segments[pass.segment_of[row]];
  const int position = segment.position + row - segment.first, last = segment.position + segment.count - 1;
  const int kept = kRewind + view.shape.conv - 1;
  float* const slot = view.slot(segment.slot);
  if (last - position < kept) {
    float* const to = slot + view.at.rows + static_cast<int64_t>(position % kept) * view.channels;
    for (int i = thread; i < view.channels; i += kThreads) to[i] = given[static_cast<int64_t>(row) * stride + i];
  }
  if (last / kDeltaChunk == position / kDeltaChunk) {
    const int width = view.shape.key_dim, all = view.shape.key_heads * width;
    const float* from = x + static_cast<int64_t>(row) * view.channels + all;
    float* const to = slot + view.at.keys + position % kDeltaChunk * width;
    for (int i = thread; i < all; i += kThreads) {
      to[static_cast<int64_t>(i / width) * kDeltaChunk * width + i % width] = from[i];
    }
  }
}

}  // namespace

void delta_keep(const float* given, int stride, const float* x, const DeltaView& view, const DeltaPass& pass,
                cudaStream_t stream) {
  ASSAY_LAUNCH(keep_rows, dim3(static_cast<unsigned>(pass.rows)), kThreads, 0, stream, given, stride, x, view, pass);
}

}  // namespace assay::cuda
