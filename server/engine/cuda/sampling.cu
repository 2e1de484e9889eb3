// argmax and sample: one token of a row of logits; one block of threads a row.
//
// argmax: the lowest index of the largest value, NaN never while a number is there.
// sample: inverse of the cumulated distribution softmax(x / temperature) at a uniform
// number. A thread sums consecutive values, threads follow in order, so that the
// cumulated weights are one fixed sequence.
#include "kernels.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

struct Best {
  float value;
  int index;

  __device__ void meet(float other, int other_index) {
    const bool lost = value != value, other_lost = other != other;  // NaN
    const bool better = lost != other_lost ? lost : other > value;
    if (better || ((other == value || (lost && other_lost)) && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
};

// The best of all threads' own ones, in every thread.
__device__ __forceinline__ Best best_of_block(Best best, Shared<float> values, Shared<int> indices) {
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) {
    const float value = __shfl_xor_sync(kFullWarp, best.value, flip);
    const int index = __shfl_xor_sync(kFullWarp, best.index, flip);
    best.meet(value, index);
  }
  if (lane_index() == 0) {
    values.put(warp_index(), best.value);
    indices.put(warp_index(), best.index);
  }
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) best.meet(values.get(warp), indices.get(warp));
  return best;
}

__device__ __forceinline__ Best best_of_row(const float* x, int n, Shared<float> values, Shared<int> indices) {
  Best best{x[0], 0};
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) best.meet(x[i], i);
  return best_of_block(best, values, indices);
}

__global__ void __launch_bounds__(kThreads) argmax_rows(const float* __restrict__ x, int n, int32_t* __restrict__ index) {
  ASSAY_STATIC_SHARED(arena, kWarps * 8);
  const Shared<float> values = arena.template take<float>(kWarps);
  const Shared<int> indices = arena.template take<int>(kWarps);
  const Best best = best_of_row(x + static_cast<int64_t>(blockIdx.x) * n, n, values, indices);
  if (threadIdx.x == 0) index[blockIdx.x] = best.index;
}

__global__ void __launch_bounds__(kThreads)
    sample_rows(const float* __restrict__ logits, int n, float inverse, const float* __restrict__ uniform,
                int32_t* __restrict__ index) {
  ASSAY_STATIC_SHARED(arena, kWarps * 8 + kThreads * 4);
  const Shared<float> values = arena.template take<float>(kWarps);
  const Shared<int> indices = arena.template take<int>(kWarps);
  const Shared<float> sums = arena.template take<float>(kThreads);
  const float* x = logits + static_cast<int64_t>(blockIdx.x) * n;
  const int thread = static_cast<int>(threadIdx.x);
  const Best best = best_of_row(x, n, values, indices);
  const int length = (n + kThreads - 1) / kThreads;
  const int begin = thread * length < n ? thread * length : n, end = begin + length < n ? begin + length : n;
  const auto weight = [&](int i) {
    const float exponent = (x[i] - best.value) * inverse;
    return exponent > -87.0f ? exponential(exponent) : 0.0f;  // also where it is no number
  };
  float own = 0.0f;
  for (int i = begin; i < end; ++i) own += weight(i);
  sums.put(thread, own);
  __syncthreads();
  float before = 0.0f, all = 0.0f;
  for (int i = 0; i < kThreads; ++i) {
    if (i == thread) before = all;
    all += sums.get(i);
  }
  const float target = uniform[blockIdx.x] * all;
  if (thread == 0 && !(target < all)) {  // rounded up to the whole: the last that has a weight
    int last = n - 1;
    while (last > best.index && !(weight(last) > 0.0f)) --last;
    index[blockIdx.x] = last;
  }
  if (!(before <= target && target < before + own)) return;
  float total = before;
  int last = best.index;
  for (int i = begin; i < end; ++i) {
    const float each = weight(i);
    if (each > 0.0f) last = i;
    total += each;
    if (total > target) break;
  }
  index[blockIdx.x] = last;
}

}  // namespace

void argmax(const float* x, int n, int rows, int32_t* index, cudaStream_t stream) {
  ASSAY_LAUNCH(argmax_rows, dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, x, n, index);
}

void sample(const float* x, int n, int rows, float temperature, const float* uniform, int32_t* index,
            cudaStream_t stream) {
  if (!(temperature > 0.0f)) bad_argument("a temperature that is not above 0");
  ASSAY_LAUNCH(sample_rows, dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, x, n, 1.0f / temperature, uniform,
               index);
}

}  // namespace assay::cuda
