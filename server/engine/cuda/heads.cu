// rope and kv_write: the heads of each row, rotated in place and put into the cache; one block of threads a row.
//
// Rope turns the interleaved pairs (2i, 2i + 1) of the first rope_dim values of each
// query and key head by the angles of the row's position. Then a warp takes the keys
// or the values of one head and narrows them: to halves, clamped to finite, or to
// int8 with one scale (max|x| / 127, rounded to nearest, ties to even).
#include "kernels.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

__device__ __forceinline__ void rotate(float* head, int pair, float cosine, float sine) {
  const float a = head[2 * pair], b = head[2 * pair + 1];
  head[2 * pair] = __fmaf_rn(a, cosine, -(b * sine));
  head[2 * pair + 1] = __fmaf_rn(a, sine, b * cosine);
}

// One head's keys (`values` false) or values of one position; `index` says where dimension d goes.
template <typename Index>
__device__ __forceinline__ void store_halves(const float* from, int count, int width, uint8_t* to, const Index& index) {
  for (int d = lane_index(); d < width; d += kWarp) {
    reinterpret_cast<uint16_t*>(to)[index(d)] = d < count ? half_bits(from[d]) : static_cast<uint16_t>(0);
  }
}

template <typename Index>
__device__ __forceinline__ void store_bytes(const float* from, int count, int width, uint8_t* to, float* scale,
                                            const Index& index) {
  float largest = 0.0f;
  for (int d = lane_index(); d < count; d += kWarp) largest = fmaxf(largest, fabs(from[d]));
  largest = warp_largest(largest);
  const float inverse = largest > 0.0f ? __fdiv_rn(127.0f, largest) : 0.0f;
  for (int d = lane_index(); d < width; d += kWarp) {
    const float scaled = d < count ? rintf(from[d] * inverse) : 0.0f;
    to[index(d)] = static_cast<uint8_t>(static_cast<int8_t>(fabs(scaled) < 128.0f ? static_cast<int>(scaled) : 0));
  }
  if (lane_index() == 0) *scale = __fdiv_rn(largest, 127.0f);
}

template <KvType kType>
__global__ void __launch_bounds__(kThreads)
    place_rows(float* qkv, HeadShape shape, const float* __restrict__ cosines, const float* __restrict__ sines,
               KvView kv) {
  const int row = static_cast<int>(blockIdx.x), position = kv.visible[row] - 1;
  float* const values = qkv + static_cast<int64_t>(row) * shape.stride;
  const int half = shape.rope_dim / 2;
  const float* cosine = cosines + static_cast<int64_t>(position) * half;
  const float* sine = sines + static_cast<int64_t>(position) * half;
  for (int i = static_cast<int>(threadIdx.x); i < (shape.heads + shape.kv_heads) * half; i += kThreads) {
    rotate(values + i / half * shape.head_dim, i % half, cosine[i % half], sine[i % half]);
  }
  __syncthreads();
  const KvLayout layout = kv.layout;
  const int block = position / kPositionBlock, at = position % kPositionBlock;
  for (int task = warp_index(); task < 2 * shape.kv_heads; task += kWarps) {
    const bool is_key = task < shape.kv_heads;
    const int kv_head = is_key ? task : task - shape.kv_heads;
    const float* from = values + (shape.heads + task) * shape.head_dim;
    uint8_t* const head = kv.head(row, block, kv_head);
    uint8_t* const to = is_key ? head : head + layout.value_offset();
    const int width = is_key ? layout.padded() : layout.head_dim;
    const auto index = [&](int d) { return is_key ? at * layout.padded() + d : layout.value_index(at, d); };
    if constexpr (kType == KvType::f16) {
      store_halves(from, layout.head_dim, width, to, index);
    } else {
      float* scales = reinterpret_cast<float*>(head + layout.scale_offset()) + (is_key ? 0 : kPositionBlock);
      store_bytes(from, layout.head_dim, width, to, scales + at, index);
    }
  }
}

}  // namespace

void place_heads(float* qkv, int rows, const HeadShape& shape, const float* cosines, const float* sines,
                 const KvView& kv, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows));
  if (kv.layout.type == KvType::f16) {
    ASSAY_LAUNCH((place_rows<KvType::f16>), grid, kThreads, 0, stream, qkv, shape, cosines, sines, kv);
  } else {
    ASSAY_LAUNCH((place_rows<KvType::int8>), grid, kThreads, 0, stream, qkv, shape, cosines, sines, kv);
  }
}

}  // namespace assay::cuda
