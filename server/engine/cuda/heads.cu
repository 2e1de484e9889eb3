// head norm, rope and kv_write: the heads of each row, normed and rotated in place and put into the cache; one block
// of threads a row.
//
// A warp takes a query or key head: it is normed where the model does so, and rope turns
// pairs of its first rope_dim values by the angles of the row's position: the interleaved
// (2i, 2i + 1), or the halves (i, i + rope_dim / 2); for keys at 4 bits both are mixed. Then a warp takes the keys
// or the values of one head and narrows them: to halves, clamped to finite, to
// int8 with one scale (max|x| / 127, rounded to nearest, ties to even), or to 4 bits
// in groups of 32 (kv_q4.h), a lane a value of the group.
#include "kernels.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocks = 4;  // that a multiprocessor has room for: without it ptxas spills for the sake of two more

__device__ __forceinline__ void rotate(float& first, float& second, float cosine, float sine) {
  const float a = first, b = second;
  first = __fmaf_rn(a, cosine, -(b * sine));
  second = __fmaf_rn(a, sine, b * cosine);
}

// x / sqrt(mean(x^2) + epsilon) * weight, by a warp in place.
__device__ __forceinline__ void norm_head(float* head, int width, const float* weight, float epsilon) {
  float squares = 0.0f;
  for (int d = lane_index(); d < width; d += kWarp) squares = __fmaf_rn(head[d], head[d], squares);
  const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(width));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(mean + epsilon));
  for (int d = lane_index(); d < width; d += kWarp) head[d] = head[d] * inverse * weight[d];
  __syncwarp();
}

// Mixes a head (kv_q4.h), by a warp in place: a lane has dimensions 32 apart, so that steps from 32 on stay its own.
__device__ __forceinline__ void mix_by_warp(float* head, int head_dim) {
  const int width = mixed_width(head_dim), lane = lane_index();
  __syncwarp();
  for (int d = lane; d < head_dim; d += kWarp) {
    float value = head[d];
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_xor_sync(kFullWarp, value, step);
      value = (lane & step) == 0 ? value + other : other - value;
    }
    head[d] = value;
  }
  for (int step = kWarp; step < width; step *= 2) {
    for (int d = lane; d < head_dim; d += kWarp) {
      if ((d & step) != 0) continue;
      const float a = head[d], b = head[d + step];
      head[d] = a + b;
      head[d + step] = a - b;
    }
  }
  const float norm = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(width)));
  for (int d = lane; d < head_dim; d += kWarp) head[d] *= norm;
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

// `byte` says where the byte of dimension d goes, whose partner is `apart` on; groups lie 128 positions apart.
template <typename Byte>
__device__ __forceinline__ void store_groups(const float* from, int count, uint8_t* to, uint32_t* groups, int apart,
                                             const Byte& byte) {
  for (int first = 0; first < count; first += kKvGroup) {
    const int lane = lane_index();
    const float value = within_group(from[first + lane]);
    const float least = -warp_largest(-value), most = warp_largest(value);
    const uint16_t minimum = half_bits(least), scale = half_bits(__fdiv_rn(most - least, 15.0f));
    const float step = half_value(scale), inverse = step > 0.0f ? __fdiv_rn(1.0f, step) : 0.0f;
    const float n = rintf((value - half_value(minimum)) * inverse);
    const int own = static_cast<int>(n < 0.0f ? 0.0f : n > 15.0f ? 15.0f : n);
    const int other = __shfl_xor_sync(kFullWarp, own, apart);
    if ((lane & apart) == 0) to[byte(first + lane)] = static_cast<uint8_t>(own | other << 4);
    if (lane == 0) groups[first / kKvGroup * kPositionBlock] = two_halves(scale, minimum);
  }
}

template <KvType kType>
__global__ void __launch_bounds__(kThreads, kBlocks)
    place_rows(float* qkv, HeadShape shape, HeadNorms norms, const float* __restrict__ cosines,
               const float* __restrict__ sines, KvView kv) {
  const int row = static_cast<int>(blockIdx.x), position = kv.visible[row] - 1;
  float* const values = qkv + static_cast<int64_t>(row) * shape.stride;
  const int half = shape.rope_dim / 2;
  const float* cosine = cosines + static_cast<int64_t>(position) * half;
  const float* sine = sines + static_cast<int64_t>(position) * half;
  const int step = shape.halves ? half : 1, spread = shape.halves ? 1 : 2;
  for (int index = warp_index(); index < shape.heads + shape.kv_heads; index += kWarps) {
    float* const head = values + index * shape.head_dim;
    const float* weight = index < shape.heads ? norms.query : norms.key;
    if (weight != nullptr) norm_head(head, shape.head_dim, weight, norms.epsilon);
    for (int i = lane_index(); i < half; i += kWarp) {
      rotate(head[i * spread], head[i * spread + step], cosine[i], sine[i]);
    }
    if constexpr (kType == KvType::q4) mix_by_warp(head, shape.head_dim);
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
    } else if constexpr (kType == KvType::q4) {
      const int scales = layout.scale_offset() + (is_key ? 0 : layout.scale_bytes());
      uint32_t* const groups = reinterpret_cast<uint32_t*>(head + scales);
      if (is_key) {
        store_groups(from, layout.head_dim, to, groups + at, 2, [&](int d) { return layout.key_byte(at, d); });
      } else {
        store_groups(from, layout.head_dim, to, groups + at, 8, [&](int d) { return layout.value_byte(at, d); });
      }
    } else {
      float* scales = reinterpret_cast<float*>(head + layout.scale_offset()) + (is_key ? 0 : kPositionBlock);
      store_bytes(from, layout.head_dim, width, to, scales + at, index);
    }
  }
}

}  // namespace

void place_heads(float* qkv, int rows, const HeadShape& shape, const HeadNorms& norms, const float* cosines,
                 const float* sines, const KvView& kv, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows));
  if (kv.layout.type == KvType::f16) {
    ASSAY_LAUNCH((place_rows<KvType::f16>), grid, kThreads, 0, stream, qkv, shape, norms, cosines, sines, kv);
  } else if (kv.layout.type == KvType::int8) {
    ASSAY_LAUNCH((place_rows<KvType::int8>), grid, kThreads, 0, stream, qkv, shape, norms, cosines, sines, kv);
  } else {
    ASSAY_LAUNCH((place_rows<KvType::q4>), grid, kThreads, 0, stream, qkv, shape, norms, cosines, sines, kv);
  }
}

}  // namespace assay::cuda
