// attention, prefill form: whole tiles of queries, block by block, folding as they go; same bytes as decode and fold.
//
// A warp takes a tile and walks its positions; warps of a block of threads take tiles
// beside one another, so that they find the same keys and values in the cache. The
// queries and the running state of a tile lie in shared memory, a place for each lane: no
// lane reads another's, and nothing waits.
#include "attention.cuh"

namespace assay::cuda {
namespace {

constexpr int kMostWarps = 4;

// Queries g and g + 8 of a tile, as far as this lane knows them.
struct Running {
  float largest[2] = {kNothing, kNothing};
  float sum[2] = {0.0f, 0.0f};
};

template <KvType kType>
__device__ __forceinline__ void add_block(Shared<uint4> fragments, Shared<float4> state, const uint8_t* head,
                                          const KvLayout& layout, const int (&visible)[2], int used, bool first,
                                          Running& running) {
  float scores[kQuarters][4][4];
  float largest[2] = {kNothing, kNothing}, sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    if (quarter < used) {
      const int seen[2] = {visible[0] - quarter * kQuarter, visible[1] - quarter * kQuarter};
      float most[2];
      quarter_scores<kType>(fragments, head, layout, quarter, scores[quarter]);
      quarter_largest(scores[quarter], seen, most);
      largest[0] = fmaxf(largest[0], most[0]);
      largest[1] = fmaxf(largest[1], most[1]);
    }
  }
  Weights weights[kQuarters];
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    if (quarter < used) {
      const int seen[2] = {visible[0] - quarter * kQuarter, visible[1] - quarter * kQuarter};
      float own[2];
      weights[quarter] = quarter_weights<kType>(scores[quarter], seen, largest, head, layout, quarter, own);
      sum[0] += own[0];
      sum[1] += own[1];
    }
  }
  // A query that sees nothing of this block stays as it is.
  const bool sees[2] = {visible[0] > 0, visible[1] > 0};
  const Fold fold[2] = {Fold(running.largest[0], sees[0] ? largest[0] : 0.0f),
                        Fold(running.largest[1], sees[1] ? largest[1] : 0.0f)};
  for (int part = 0; part < layout.head_dim / 8; ++part) {
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      if (quarter < used) {
        float value[4];
        quarter_values<kType>(weights[quarter], head, layout, quarter, part, value);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] += value[i];
      }
    }
    const int at = part * kWarp + lane_index();
    float4 before = make_float4(total[0], total[1], total[2], total[3]);
    if (!first) {
      before = state.get(at);
      if (sees[0]) {
        before.x = fold[0](before.x, total[0]);
        before.y = fold[0](before.y, total[1]);
      }
      if (sees[1]) {
        before.z = fold[1](before.z, total[2]);
        before.w = fold[1](before.w, total[3]);
      }
    }
    state.put(at, before);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!sees[half]) continue;
    running.sum[half] = first ? sum[half] : fold[half](running.sum[half], sum[half]);
    running.largest[half] = first ? largest[half] : fold[half].largest;
  }
}

template <KvType kType>
__global__ void __launch_bounds__(kMostWarps * kWarp)
    attend_tiles(const float* __restrict__ q, HeadShape shape, float scale, KvView kv,
                 const QueryTile* __restrict__ tiles, int tile_count, float* __restrict__ out) {
  const KvLayout layout = kv.layout;
  const int chunks = layout.padded() / 32, parts = layout.head_dim / 8, warps = static_cast<int>(blockDim.x) / kWarp;
  ASSAY_DYNAMIC_SHARED(arena);
  const Shared<uint4> all_fragments = arena.template take<uint4>(warps * chunks * kFragments * kWarp);
  const Shared<float4> all_states = arena.template take<float4>(warps * parts * kWarp);
  const int index = static_cast<int>(blockIdx.x) * warps + warp_index();
  if (index >= tile_count) return;
  const Shared<uint4> fragments =
      all_fragments.part(warp_index() * chunks * kFragments * kWarp, chunks * kFragments * kWarp);
  const Shared<float4> state = all_states.part(warp_index() * parts * kWarp, parts * kWarp);

  const QueryTile tile = tiles[index];
  const int group = shape.heads / shape.kv_heads, kv_head = static_cast<int>(blockIdx.y);
  const auto row_of = [&](int i) { return tile.first_row + (tile.first + i) / group; };
  const auto head_of = [&](int i) { return kv_head * group + (tile.first + i) % group; };
  for (int chunk = 0; chunk < chunks; ++chunk) {
    store_queries(fragments, chunk, layout.head_dim, scale, [&](int i) {
      const float* none = nullptr;
      return i < tile.count ? q + static_cast<int64_t>(row_of(i)) * shape.stride + head_of(i) * shape.head_dim : none;
    });
  }
  const int g = lane_index() / 4, t = lane_index() % 4;
  int most = 0;
  for (int i = 0; i < tile.count; ++i) most = kv.visible[row_of(i)] > most ? kv.visible[row_of(i)] : most;
  const int visible[2] = {g < tile.count ? kv.visible[row_of(g)] : 0,
                          g + 8 < tile.count ? kv.visible[row_of(g + 8)] : 0};
  Running running;
  for (int first = 0; first < most; first += kPositionBlock) {
    const uint8_t* head = kv.head(tile.first_row, first / kPositionBlock, kv_head);
    const int own[2] = {visible[0] - first, visible[1] - first};
    const int used = most - first < kPositionBlock ? (most - first + kQuarter - 1) / kQuarter : kQuarters;
    add_block<kType>(fragments, state, head, layout, own, used, first == 0, running);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = g + 8 * half;
    if (i >= tile.count) continue;
    float* target = out + (static_cast<int64_t>(row_of(i)) * shape.heads + head_of(i)) * shape.head_dim + 2 * t;
    const float inverse = __fdiv_rn(1.0f, running.sum[half]);
    for (int part = 0; part < parts; ++part) {
      const float4 value = state.get(part * kWarp + lane_index());
      const float2 own = half == 0 ? make_float2(value.x, value.y) : make_float2(value.z, value.w);
      *reinterpret_cast<float2*>(target + part * 8) = make_float2(own.x * inverse, own.y * inverse);
    }
  }
}

}  // namespace

void attention_prefill(const float* q, const HeadShape& shape, float scale, const KvView& kv, const QueryTile* tiles,
                       int tile_count, float* out, cudaStream_t stream) {
  const int warps = shape.head_dim > 128 ? kMostWarps / 2 : kMostWarps;  // what shared memory holds of them
  const dim3 grid(static_cast<unsigned>((tile_count + warps - 1) / warps), static_cast<unsigned>(shape.kv_heads));
  const size_t chunks = static_cast<size_t>(kv.layout.padded() / 32), parts = static_cast<size_t>(shape.head_dim / 8);
  const size_t shared = static_cast<size_t>(warps) * (chunks * kFragments + parts) * kWarp * 16;
  const unsigned threads = static_cast<unsigned>(warps * kWarp);
  if (kv.layout.type == KvType::f16) {
    ASSAY_LAUNCH((attend_tiles<KvType::f16>), grid, threads, shared, stream, q, shape, scale, kv, tiles, tile_count,
                 out);
  } else if (kv.layout.type == KvType::int8) {
    ASSAY_LAUNCH((attend_tiles<KvType::int8>), grid, threads, shared, stream, q, shape, scale, kv, tiles, tile_count,
                 out);
  } else {
    ASSAY_LAUNCH((attend_tiles<KvType::q4>), grid, threads, shared, stream, q, shape, scale, kv, tiles, tile_count,
                 out);
  }
}

}  // namespace assay::cuda
