// attention, decode form: partial results of single position blocks, then their fold.
//
// A block of threads takes one row, one key/value head (up to 16 queries of it) and
// one position block; its four warps a quarter each. How the positions are split
// depends on them alone. A second kernel folds a head's partials in their order.
#include "attention.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = kQuarters * kWarp;

template <KvType kType>
__global__ void __launch_bounds__(kThreads)
    attend_blocks(const float* __restrict__ q, HeadShape shape, float scale, KvView kv, float* __restrict__ partials) {
  const int row = static_cast<int>(blockIdx.z), block = static_cast<int>(blockIdx.x);
  const int visible = kv.visible[row] - block * kPositionBlock;
  if (visible <= 0) return;
  const KvLayout layout = kv.layout;
  const int group = shape.heads / shape.kv_heads, tiles = (group + kTileQueries - 1) / kTileQueries;
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int first = static_cast<int>(blockIdx.y) % tiles * kTileQueries;
  const int count = group - first < kTileQueries ? group - first : kTileQueries;
  const int head_index = kv_head * group + first, parts = layout.head_dim / 8, chunks = layout.padded() / 32;

  ASSAY_DYNAMIC_SHARED(arena);
  const Shared<uint4> fragments = arena.template take<uint4>(chunks * kFragments * kWarp);
  const Shared<float> tops = arena.template take<float>(kQuarters * kTileQueries);
  const Shared<float> sums = arena.template take<float>(kQuarters * kTileQueries);
  const Shared<float4> values = arena.template take<float4>(kQuarters * parts * kWarp);
  const int quarter = warp_index(), lane = lane_index(), g = lane / 4, t = lane % 4;
  const float* queries = q + static_cast<int64_t>(row) * shape.stride + head_index * shape.head_dim;
  for (int chunk = quarter; chunk < chunks; chunk += kQuarters) {
    store_queries(fragments, chunk, layout.head_dim, scale,
                  [&](int i) { return i < count ? queries + i * shape.head_dim : nullptr; });
  }
  __syncthreads();

  const uint8_t* head = kv.head(row, block, kv_head);
  const int own = visible - quarter * kQuarter, seen[2] = {own, own};
  const int used = visible < kPositionBlock ? (visible + kQuarter - 1) / kQuarter : kQuarters;  // quarters
  float scores[4][4];
  float largest[2] = {kNothing, kNothing};
  if (quarter < used) {
    quarter_scores<kType>(fragments, head, layout, quarter, scores);
    quarter_largest(scores, seen, largest);
  }
  if (t == 0) {
    tops.put(quarter * kTileQueries + g, largest[0]);
    tops.put(quarter * kTileQueries + g + 8, largest[1]);
  }
  __syncthreads();
  for (int i = 0; i < kQuarters; ++i) {
    largest[0] = fmaxf(largest[0], tops.get(i * kTileQueries + g));
    largest[1] = fmaxf(largest[1], tops.get(i * kTileQueries + g + 8));
  }
  if (quarter < used) {
    float sum[2];
    const Weights weights = quarter_weights<kType>(scores, seen, largest, head, layout, quarter, sum);
    if (t == 0) {
      sums.put(quarter * kTileQueries + g, sum[0]);
      sums.put(quarter * kTileQueries + g + 8, sum[1]);
    }
    for (int part = 0; part < parts; ++part) {
      float value[4];
      quarter_values<kType>(weights, head, layout, quarter, part, value);
      values.put((quarter * parts + part) * kWarp + lane, make_float4(value[0], value[1], value[2], value[3]));
    }
  }
  __syncthreads();

  const int64_t stride = layout.head_dim + kPartialTail;
  float* out = partials + ((static_cast<int64_t>(row) * shape.heads + head_index) * gridDim.x + block) * stride;
  const int64_t next_query = static_cast<int64_t>(gridDim.x) * stride;
  for (int part = quarter; part < parts; part += kQuarters) {
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 0; i < used; ++i) {
      const float4 value = values.get((i * parts + part) * kWarp + lane);
      total = make_float4(total.x + value.x, total.y + value.y, total.z + value.z, total.w + value.w);
    }
    const int d = part * 8 + 2 * t;
    if (g < count) *reinterpret_cast<float2*>(out + g * next_query + d) = make_float2(total.x, total.y);
    if (g + 8 < count) *reinterpret_cast<float2*>(out + (g + 8) * next_query + d) = make_float2(total.z, total.w);
  }
  if (static_cast<int>(threadIdx.x) < count) {
    float top = kNothing, sum = 0.0f;
    for (int i = 0; i < used; ++i) {
      top = fmaxf(top, tops.get(i * kTileQueries + static_cast<int>(threadIdx.x)));
      sum += sums.get(i * kTileQueries + static_cast<int>(threadIdx.x));
    }
    out[threadIdx.x * next_query + layout.head_dim] = top;
    out[threadIdx.x * next_query + layout.head_dim + 1] = sum;
  }
}

// One row and head; a thread a dimension.
__global__ void __launch_bounds__(kMostHeadDim)
    fold_partials(const float* __restrict__ partials, const int32_t* __restrict__ visible, HeadShape shape,
                  int most_blocks, float* __restrict__ out) {
  const int d = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.y);
  if (d >= shape.head_dim) return;
  const int blocks = (visible[row] + kPositionBlock - 1) / kPositionBlock;
  const int64_t stride = shape.head_dim + kPartialTail;
  const int64_t index = static_cast<int64_t>(row) * shape.heads + blockIdx.x;
  const float* next = partials + index * most_blocks * stride;
  float value = next[d], largest = next[shape.head_dim], sum = next[shape.head_dim + 1];
#pragma unroll 4
  for (int block = 1; block < blocks; ++block) {
    next += stride;
    const Fold fold(largest, next[shape.head_dim]);
    value = fold(value, next[d]);
    sum = fold(sum, next[shape.head_dim + 1]);
    largest = fold.largest;
  }
  out[index * shape.head_dim + d] = value * __fdiv_rn(1.0f, sum);
}

}  // namespace

void attention_decode(const float* q, int rows, const HeadShape& shape, float scale, const KvView& kv, int most_blocks,
                      float* partials, cudaStream_t stream) {
  const int tiles = (shape.heads / shape.kv_heads + kTileQueries - 1) / kTileQueries;
  const dim3 grid(static_cast<unsigned>(most_blocks), static_cast<unsigned>(shape.kv_heads * tiles),
                  static_cast<unsigned>(rows));
  const size_t chunks = static_cast<size_t>(kv.layout.padded() / 32), parts = static_cast<size_t>(shape.head_dim / 8);
  const size_t shared = (chunks * kFragments + kQuarters * parts) * kWarp * 16 + 2 * kQuarters * kTileQueries * 4;
  if (kv.layout.type == KvType::f16) {
    ASSAY_LAUNCH((attend_blocks<KvType::f16>), grid, kThreads, shared, stream, q, shape, scale, kv, partials);
  } else if (kv.layout.type == KvType::int8) {
    ASSAY_LAUNCH((attend_blocks<KvType::int8>), grid, kThreads, shared, stream, q, shape, scale, kv, partials);
  } else {
    ASSAY_LAUNCH((attend_blocks<KvType::q4>), grid, kThreads, shared, stream, q, shape, scale, kv, partials);
  }
}

void attention_fold(const float* partials, const int32_t* visible, int rows, const HeadShape& shape, int most_blocks,
                    float* out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(shape.heads), static_cast<unsigned>(rows));
  const unsigned threads = static_cast<unsigned>((shape.head_dim + kWarp - 1) / kWarp * kWarp);
  ASSAY_LAUNCH(fold_partials, grid, threads, 0, stream, partials, visible, shape, most_blocks, out);
}

}  // namespace assay::cuda
