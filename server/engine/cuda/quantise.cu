// rmsnorm, quantise, silu_mul, sigmoid_mul, gated_norm: rows of values as activations (kernels.cuh); one block of
// threads a row.
//
// They differ in where a value comes from. A warp takes a block of 32 values,
// a value a lane. Which blocks are refined is known when all scales are: the values
// are computed again for their residuals, which costs less than keeping them.
#include "kernels.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

__device__ __forceinline__ float silu(float x) { return __fdiv_rn(x, 1.0f + exponential(-x)); }

// x / sqrt(mean(x^2) + epsilon) * weight
struct Normed {
  const float* x;
  const int32_t* indices;
  const float* weight;
  float epsilon;
  int stride;
  const float* row = nullptr;
  float inverse = 0.0f;

  __host__ __device__ int shared_floats(int) const { return kWarps; }
  __device__ void prepare(int index, int n, Shared<float> parts) {
    row = x + static_cast<int64_t>(indices == nullptr ? index : indices[index]) * stride;
    float squares = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) squares = __fmaf_rn(row[i], row[i], squares);
    squares = warp_sum(squares);
    if (lane_index() == 0) parts.put(warp_index(), squares);
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < kWarps; ++warp) total += parts.get(warp);
    inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, static_cast<float>(n)) + epsilon));
  }
  __device__ float value(int i) const { return row[i] * inverse * weight[i]; }
};

struct Plain {
  const float* x;
  int stride;
  const float* row = nullptr;

  __host__ __device__ int shared_floats(int) const { return 0; }
  __device__ void prepare(int index, int, Shared<float>) { row = x + static_cast<int64_t>(index) * stride; }
  __device__ float value(int i) const { return row[i]; }
};

// gate / (1 + exp(-gate)) * up
struct Gated {
  const float* gate;
  const float* up;
  int stride;
  int64_t offset = 0;

  __host__ __device__ int shared_floats(int) const { return 0; }
  __device__ void prepare(int index, int, Shared<float>) { offset = static_cast<int64_t>(index) * stride; }
  __device__ float value(int i) const { return silu(gate[offset + i]) * up[offset + i]; }
};

// x / (1 + exp(-gate))
struct Sigmoid {
  const float* x;
  int stride;
  const float* gate;
  int gate_stride;
  const float* row = nullptr;
  const float* gates = nullptr;

  __host__ __device__ int shared_floats(int) const { return 0; }
  __device__ void prepare(int index, int, Shared<float>) {
    row = x + static_cast<int64_t>(index) * stride;
    gates = gate + static_cast<int64_t>(index) * gate_stride;
  }
  __device__ float value(int i) const { return row[i] * __fdiv_rn(1.0f, 1.0f + exponential(-gates[i])); }
};

// Each head by itself: x / sqrt(mean(x^2) + epsilon) * weight, then times silu(gate). A warp takes a head's mean.
struct NormedHeads {
  const float* x;
  int stride;
  const float* weight;
  float epsilon;
  int width;  // of a head
  const float* gate;
  int gate_stride;
  const float* row = nullptr;
  const float* gates = nullptr;
  Shared<float> inverse = {};

  __host__ __device__ int shared_floats(int n) const { return n / width; }
  __device__ void prepare(int index, int n, Shared<float> heads) {
    row = x + static_cast<int64_t>(index) * stride;
    gates = gate + static_cast<int64_t>(index) * gate_stride;
    inverse = heads;
    for (int head = warp_index(); head < n / width; head += kWarps) {
      float squares = 0.0f;
      for (int d = lane_index(); d < width; d += kWarp) {
        squares = __fmaf_rn(row[head * width + d], row[head * width + d], squares);
      }
      const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(width));
      if (lane_index() == 0) inverse.put(head, __fdiv_rn(1.0f, __fsqrt_rn(mean + epsilon)));
    }
    __syncthreads();
  }
  __device__ float value(int i) const {
    return row[i] * inverse.get(i / width) * weight[i % width] * silu(gates[i]);
  }
};

// Not finite when the value is not: such a model is lost, but the conversion must stay defined.
__device__ __forceinline__ int rounded(float value) {
  if (!(fabs(value) < 1024.0f)) return 0;
  const int nearest = static_cast<int>(rintf(value));
  return nearest > 127 ? 127 : nearest < -127 ? -127 : nearest;
}

// Whether `block` is among the `refinements` of largest scale, the lowest index first among equals.
__device__ __forceinline__ bool is_refined(Shared<float> scales, int blocks, int block, int refinements) {
  if (refinements == 0 || refinements == blocks) return refinements != 0;
  const float scale = scales.get(block);
  int wider = 0;
  for (int i = lane_index(); i < blocks; i += kWarp) {
    const float other = scales.get(i);
    wider += other > scale || (other == scale && i < block) ? 1 : 0;
  }
  return warp_sum(wider) < refinements;
}

template <typename Source>
__global__ void __launch_bounds__(kThreads) quantise_rows(Source source, int refinements, Activations out) {
  ASSAY_DYNAMIC_SHARED(arena);
  const int row = static_cast<int>(blockIdx.x), n = out.columns, blocks = (n + kBlock - 1) / kBlock;
  const Shared<float> parts = arena.template take<float>(source.shared_floats(n));
  const Shared<float> scales = arena.template take<float>(blocks);
  source.prepare(row, n, parts);
  for (int block = warp_index(); block < blocks; block += kWarps) {
    const int i = block * kBlock + lane_index();
    const float value = i < n ? source.value(i) : 0.0f;
    if (out.x != nullptr && i < n) out.x[static_cast<int64_t>(row) * n + i] = value;
    const float largest = warp_largest(fabs(value));
    if (lane_index() == 0) scales.put(block, __fdiv_rn(largest, 127.0f));
  }
  if (out.q == nullptr) return;
  __syncthreads();
  for (int block = warp_index(); block < blocks; block += kWarps) {
    const int64_t at = static_cast<int64_t>(block) * out.stride + row;
    const float value = source.value(block * kBlock + lane_index());
    const float largest = warp_largest(fabs(value));
    const float scaled = value * (largest > 0.0f ? __fdiv_rn(127.0f, largest) : 0.0f);
    const int q = rounded(scaled);
    const bool refined = is_refined(scales, blocks, block, refinements);
    const int residual = refined ? rounded((scaled - static_cast<float>(q)) * 256.0f) : 0;
    reinterpret_cast<int8_t*>(out.q + at * 2)[lane_index()] = static_cast<int8_t>(q);
    reinterpret_cast<int8_t*>(out.residual + at * 2)[lane_index()] = static_cast<int8_t>(residual);
    const int total = warp_sum(q), left = warp_sum(residual);
    if (lane_index() == 0) {
      const float scale = scales.get(block);
      const float sum = static_cast<float>(total) + static_cast<float>(left) * 0x1p-8f;
      out.scale[at] = make_float2(refined ? -scale : scale, sum);
    }
  }
}

template <typename Source>
void run(const Source& source, int refinements, const Activations& out, cudaStream_t stream) {
  const size_t blocks = static_cast<size_t>((out.columns + kBlock - 1) / kBlock);
  const size_t parts = static_cast<size_t>(source.shared_floats(out.columns));
  const size_t shared = ((parts + 3) / 4 + (blocks + 3) / 4) * 4 * sizeof(float);
  ASSAY_LAUNCH((quantise_rows<Source>), dim3(static_cast<unsigned>(out.rows)), kThreads, shared, stream, source,
               refinements, out);
}

}  // namespace

void rmsnorm(const float* x, int stride, const int32_t* indices, const float* weight, float epsilon, int refinements,
             const Activations& out, cudaStream_t stream) {
  run(Normed{x, indices, weight, epsilon, stride}, refinements, out, stream);
}

void quantise(const float* x, int stride, int refinements, const Activations& out, cudaStream_t stream) {
  run(Plain{x, stride}, refinements, out, stream);
}

void silu_mul(const float* gate, const float* up, int stride, int refinements, const Activations& out,
              cudaStream_t stream) {
  run(Gated{gate, up, stride}, refinements, out, stream);
}

void sigmoid_mul(const float* x, int stride, const float* gate, int gate_stride, int refinements,
                 const Activations& out, cudaStream_t stream) {
  run(Sigmoid{x, stride, gate, gate_stride}, refinements, out, stream);
}

void gated_norm(const float* x, int stride, const float* weight, float epsilon, int width, const float* gate,
                int gate_stride, int refinements, const Activations& out, cudaStream_t stream) {
  run(NormedHeads{x, stride, weight, epsilon, width, gate, gate_stride}, refinements, out, stream);
}

}  // namespace assay::cuda
