// delta: the recurrence of a gated delta layer; one block of threads a value head of a segment, row after row.
//
// Step and chunk are one kernel: a decoding row is a segment of one. A thread has one
// column of S in one of kRuns runs of the keys' dimensions, in registers for the whole
// segment; the running chunk's u, which are a head's own, lie in the slot. Sums over
// dimensions and over positions are cut into runs alike, each a chain of fused steps from
// zero, the state's part first; the runs are added in their order. Products of keys are
// those of a warp: lane by lane, then the lanes (warp_sum).
#include "delta.cuh"

namespace assay::cuda {
namespace {

constexpr int kRuns = 4;
constexpr int kMostWidth = 128;                    // of a head
constexpr int kMostThreads = kRuns * kMostWidth;
constexpr int kRunPositions = kDeltaChunk / kRuns;

__device__ __forceinline__ float4 four(const float* from) { return __ldg(reinterpret_cast<const float4*>(from)); }

// One value head of one segment.
struct Head {
  const float* x;
  DeltaSegment segment;
  int channels, key_dim, query_at, key_at, value_at;  // where a row has the head's query, key and value
  const float* kept;                                  // keys of the running chunk that were there before the segment
  float* writes;
  float* decays;

  __device__ const float* row(int index) const { return x + static_cast<int64_t>(segment.first + index) * channels; }
  // The key of position j of the chunk that begins at `base`.
  __device__ const float* key(int base, int j) const {
    const int index = base + j - segment.position;
    return index < 0 ? kept + j * key_dim : row(index) + key_at;
  }
};

__device__ __forceinline__ Head head_of(const float* x, const DeltaView& view, const DeltaSegment& segment, int index) {
  const DeltaShape& shape = view.shape;
  const int key_head = view.grouped ? index / (shape.value_heads / shape.key_heads) : index % shape.key_heads;
  float* slot = view.slot(segment.slot);
  Head head;
  head.x = x;
  head.segment = segment;
  head.channels = view.channels;
  head.key_dim = shape.key_dim;
  head.query_at = key_head * shape.key_dim;
  head.key_at = shape.key_heads * shape.key_dim + head.query_at;
  head.value_at = 2 * shape.key_heads * shape.key_dim + index * shape.value_dim;
  head.kept = slot + view.at.keys + static_cast<int64_t>(key_head) * kDeltaChunk * shape.key_dim;
  head.writes = slot + view.at.writes + static_cast<int64_t>(index) * kDeltaChunk * shape.value_dim;
  head.decays = slot + view.at.decays + static_cast<int64_t>(index) * kDeltaChunk;
  return head;
}

// One thread's part of S: kDims dimensions of the keys from `first` on, in one column.
template <int kDims>
struct Column {
  float value[kDims];
  int first;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int d = 0; d < kDims; ++d) value[d] = 0.0f;
  }
  template <typename Visit>
  __device__ __forceinline__ void each(int key_dim, const Visit& visit) {
#pragma unroll
    for (int d = 0; d < kDims; d += 4) {
      if (first + d < key_dim) visit(d);
    }
  }
  // (S^T k, S^T q) of these dimensions.
  __device__ __forceinline__ float2 products(const float* key, const float* query, int key_dim) {
    float2 sum = make_float2(0.0f, 0.0f);
    each(key_dim, [&](int d) {
      const float4 k = four(key + first + d), q = four(query + first + d);
      sum.x = __fmaf_rn(value[d], k.x, sum.x);
      sum.x = __fmaf_rn(value[d + 1], k.y, sum.x);
      sum.x = __fmaf_rn(value[d + 2], k.z, sum.x);
      sum.x = __fmaf_rn(value[d + 3], k.w, sum.x);
      sum.y = __fmaf_rn(value[d], q.x, sum.y);
      sum.y = __fmaf_rn(value[d + 1], q.y, sum.y);
      sum.y = __fmaf_rn(value[d + 2], q.z, sum.y);
      sum.y = __fmaf_rn(value[d + 3], q.w, sum.y);
    });
    return sum;
  }
  __device__ __forceinline__ void decay(float factor) {
#pragma unroll
    for (int d = 0; d < kDims; ++d) value[d] *= factor;
  }
  __device__ __forceinline__ void add(const float* key, float write, int key_dim) {
    each(key_dim, [&](int d) {
      const float4 k = four(key + first + d);
      value[d] = __fmaf_rn(k.x, write, value[d]);
      value[d + 1] = __fmaf_rn(k.y, write, value[d + 1]);
      value[d + 2] = __fmaf_rn(k.z, write, value[d + 2]);
      value[d + 3] = __fmaf_rn(k.w, write, value[d + 3]);
    });
  }
};

template <int kDims>
__global__ void __launch_bounds__(kMostThreads)
    delta_rows(const float* __restrict__ x, const float2* __restrict__ gates, DeltaView view, DeltaPass pass,
               float* __restrict__ out) {
  if (static_cast<int>(blockIdx.y) >= *pass.segment_count) return;
  ASSAY_STATIC_SHARED(arena, kDeltaChunk * 12 + kMostThreads * 8);
  const Shared<float2> products = arena.template take<float2>(kDeltaChunk);  // decayed k_j . k_i and k_j . q_i
  const Shared<float> logs = arena.template take<float>(kDeltaChunk);        // G
  const Shared<float2> parts = arena.template take<float2>(kMostThreads);
  const DeltaSegment segment = pass.segments[blockIdx.y];
  const int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int width = static_cast<int>(blockDim.x) / kRuns, value_dim = view.shape.value_dim;
  const int run = thread / width, column = thread % width, warps = static_cast<int>(blockDim.x) / kWarp;
  const bool used = column < value_dim;
  const Head head = head_of(x, view, segment, index);
  float* const stored = view.slot(segment.slot) + static_cast<int64_t>(index) * head.key_dim * value_dim + column;

  Column<kDims> state;
  state.first = run * kDims;
  state.clear();
  int base = segment.base;
  if (base > 0 && used) {
    state.each(head.key_dim, [&](int d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.value[d + i] = stored[static_cast<int64_t>(state.first + d + i) * value_dim];
    });
  }
  const int known = segment.position - base;  // positions of the chunk that were there before
  for (int j = thread; j < known; j += static_cast<int>(blockDim.x)) logs.put(j, head.decays[j]);
  __syncthreads();
  float log = known > 0 ? logs.get(known - 1) : 0.0f;

  for (int row = 0; row < segment.count; ++row) {
    if (segment.position + row - base == kDeltaChunk) {
      for (int j = thread; j < kDeltaChunk; j += static_cast<int>(blockDim.x)) {
        products.put(j, make_float2(exponential(log - logs.get(j)), 0.0f));
      }
      __syncthreads();
      state.decay(exponential(log));
      for (int j = 0; j < kDeltaChunk; ++j) {
        const float write = used ? head.writes[j * value_dim + column] : 0.0f;
        state.add(head.key(base, j), products.get(j).x * write, head.key_dim);
      }
      base += kDeltaChunk;
      log = 0.0f;
      __syncthreads();
    }
    const int i = segment.position + row - base;
    const float2 gate = gates[static_cast<int64_t>(segment.first + row) * view.shape.value_heads + index];
    const float* const key = head.row(row) + head.key_at;
    const float* const query = head.row(row) + head.query_at;
    log += gate.x;
    for (int j = warp_index(); j <= i; j += warps) {
      const float* const other = head.key(base, j);
      float with_key = 0.0f, with_query = 0.0f;
      for (int d = lane_index(); d < head.key_dim; d += kWarp) {
        const float value = __ldg(other + d);
        with_key = __fmaf_rn(value, __ldg(key + d), with_key);
        with_query = __fmaf_rn(value, __ldg(query + d), with_query);
      }
      with_key = warp_sum(with_key);
      with_query = warp_sum(with_query);
      if (lane_index() == 0) {
        const float kept = j == i ? 1.0f : exponential(log - logs.get(j));
        products.put(j, make_float2(kept * with_key, kept * with_query));
        if (j == i) {
          logs.put(i, log);
          head.decays[i] = log;
        }
      }
    }
    __syncthreads();

    float2 sum = state.products(key, query, head.key_dim);
    const float kept = exponential(log);
    sum = make_float2(sum.x * kept, sum.y * kept);
    const int end = i < (run + 1) * kRunPositions ? i : (run + 1) * kRunPositions;
    for (int j = run * kRunPositions; j < end; ++j) {
      const float write = used ? head.writes[j * value_dim + column] : 0.0f;
      const float2 product = products.get(j);
      sum.x = __fmaf_rn(product.x, write, sum.x);
      sum.y = __fmaf_rn(product.y, write, sum.y);
    }
    const float own = products.get(i).y;
    parts.put(thread, sum);
    __syncthreads();

    if (run == 0 && used) {
      float2 total = sum;
#pragma unroll
      for (int other = 1; other < kRuns; ++other) {
        const float2 part = parts.get(other * width + column);
        total = make_float2(total.x + part.x, total.y + part.y);
      }
      const float write = gate.y * (__ldg(head.row(row) + head.value_at + column) - total.x);
      head.writes[i * value_dim + column] = write;
      out[(static_cast<int64_t>(segment.first + row) * view.shape.value_heads + index) * value_dim + column] =
          __fmaf_rn(own, write, total.y);
    }
  }
  if (base != segment.base && used) {
    state.each(head.key_dim, [&](int d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) stored[static_cast<int64_t>(state.first + d + i) * value_dim] = state.value[d + i];
    });
  }
}

template <int kDims>
void run(const float* x, const float2* gates, const DeltaView& view, const DeltaPass& pass, float* out,
         cudaStream_t stream) {
  const unsigned width = static_cast<unsigned>((view.shape.value_dim + kWarp - 1) / kWarp * kWarp);
  const dim3 grid(static_cast<unsigned>(view.shape.value_heads), static_cast<unsigned>(pass.most_segments));
  ASSAY_LAUNCH((delta_rows<kDims>), grid, kRuns * width, 0, stream, x, gates, view, pass, out);
}

}  // namespace

void delta(const float* x, const float2* gates, const DeltaView& view, const DeltaPass& pass, float* out,
           cudaStream_t stream) {
  const int dims = (view.shape.key_dim + kRuns - 1) / kRuns;
  if (dims <= 8) {
    run<8>(x, gates, view, pass, out, stream);
  } else if (dims <= 16) {
    run<16>(x, gates, view, pass, out, stream);
  } else {
    run<32>(x, gates, view, pass, out, stream);
  }
}

}  // namespace assay::cuda
