// qlinear, decode form: a few rows of activations times every row of the matrix, at the speed of memory.
//
// A block of threads takes one tile: a lane a row of it, a warp a segment of the
// columns (linear.cuh). A warp reads 512 bytes of weights at once, several blocks
// ahead, the header of a group once, and every lane the same activations; integers are
// multiplied four at a time (dp4a). Matrices of floats use this form for any number of rows.
#include <type_traits>

#include "linear.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = kSegments * kWarp;

// One row's part of a tile's block.
template <TensorType kType>
struct RowBlock {
  using Form = Layout<kType>;
  uint4 plane[Form::kPlanes];
  uint32_t high[2];

  __device__ __forceinline__ void load(const uint8_t* group, int block, int lane) {
    const uint8_t* planes = group + block * Form::kBlockBytes;
#pragma unroll
    for (int i = 0; i < Form::kPlanes; ++i) {
      plane[i] = __ldg(reinterpret_cast<const uint4*>(planes + i * kPlaneBytes) + lane);
    }
    const uint8_t* bits = group + Form::kHighAt + block * Form::kHighBytes;
    if constexpr (Form::kHighWords == 1) high[0] = high[1] = __ldg(reinterpret_cast<const uint32_t*>(bits) + lane);
    if constexpr (Form::kHighWords == 2) {
      const uint2 pair = __ldg(reinterpret_cast<const uint2*>(bits) + lane);
      high[0] = pair.x;
      high[1] = pair.y;
    }
  }

  // The row's 32 columns as signed bytes.
  __device__ __forceinline__ void unpack(uint32_t (&weights)[8]) const {
    const uint32_t words[4] = {plane[0].x, plane[0].y, plane[0].z, plane[0].w};
    if constexpr (kType == TensorType::q8_0) {
      const uint32_t more[4] = {plane[1].x, plane[1].y, plane[1].z, plane[1].w};
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        weights[t] = words[t];
        weights[4 + t] = more[t];
      }
    } else {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        weights[t] = low_columns<kType>(words[t], high[0], t);
        weights[4 + t] = high_columns<kType>(words[t], high[1], t);
      }
    }
  }
};

__device__ __forceinline__ int dot4(uint32_t a, uint32_t b, int total) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), total);
}

// The exact dot product of four words with four of activations, on top of what there is.
__device__ __forceinline__ int dot16(const uint32_t* weights, const uint4& q, int total) {
  total = dot4(weights[0], q.x, total);
  total = dot4(weights[1], q.y, total);
  total = dot4(weights[2], q.z, total);
  return dot4(weights[3], q.w, total);
}

// The dot products with 32 bytes of activations.
template <TensorType kType>
__device__ __forceinline__ Dots dots(const uint32_t (&weights)[8], const uint4* q) {
  const uint4 left = __ldg(q), right = __ldg(q + 1);
  const int first = dot16(weights, left, kFloatDisguise);
  if constexpr (Layout<kType>::kScaling != Scaling::halves) return {dot16(weights + 4, right, first), 0};
  return {first, dot16(weights + 4, right, kFloatDisguise)};
}

template <TensorType kType, int kRows>
__device__ __forceinline__ void add_quantised(const RowBlock<kType>& own, const RowScale& scale, int block,
                                              const Activations& in, int first, float (&total)[kRows]) {
  uint32_t weights[8];
  own.unpack(weights);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + r < in.rows ? first + r : in.rows - 1;
    const int64_t at = static_cast<int64_t>(block) * in.stride + row;
    const float2 activation = __ldg(in.scale + at);
    const Dots product = dots<kType>(weights, in.q + 2 * at);
    float value;
    if (is_refined(activation.x)) {
      value = block_value<kType>(scale, product, dots<kType>(weights, in.residual + 2 * at));
    } else {
      value = block_value<kType>(scale, product);
    }
    total[r] = add_block<kType>(total[r], value, scale, activation);
  }
}

template <TensorType kType, int kRows>
__device__ __forceinline__ void add_floats(const RowBlock<kType>& own, int block, const Activations& in, int first,
                                           float (&total)[kRows]) {
  constexpr int kColumns = kType == TensorType::f32 ? 4 : 8;  // of a plane
#pragma unroll
  for (int i = 0; i < Layout<kType>::kPlanes; ++i) {
    const uint32_t words[4] = {own.plane[i].x, own.plane[i].y, own.plane[i].z, own.plane[i].w};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first + r < in.rows ? first + r : in.rows - 1;
      const float* x = in.x + static_cast<int64_t>(row) * in.columns + block * kBlock + i * kColumns;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float weight;
        if constexpr (kType == TensorType::f32) {
          weight = __uint_as_float(words[c]);
        } else {
          const uint32_t bits = words[c / 2] >> (c % 2 * 16) & 0xffffu;
          weight = kType == TensorType::bf16 ? bfloat_value(bits) : half_value(static_cast<uint16_t>(bits));
        }
        total[r] = __fmaf_rn(weight, __ldg(x + c), total[r]);
      }
    }
  }
}

template <TensorType kType, int kRows>
__global__ void __launch_bounds__(kThreads, 2)
    qlinear_rows(Matrix matrix, Activations in, float* __restrict__ out, int stride, bool add) {
  using Form = Layout<kType>;
  constexpr int kAhead = Form::kPlanes > 2 ? 1 : kRows > 1 || Form::kPlanes > 1 ? 4 : 8;
  constexpr int kShared = kAhead < Form::kGroup ? kAhead : Form::kGroup;  // blocks of a step under one header
  ASSAY_STATIC_SHARED(arena, kSegments * kTileRows * kRows * 4);
  const Shared<float> sums = arena.template take<float>(kSegments * kTileRows * kRows);
  const int lane = lane_index(), segment = warp_index();
  const int tile = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * kRows;
  const int blocks = block_count(matrix.columns), length = segment_blocks<kType>(blocks);
  const int begin = segment * length, end = begin + length < blocks ? begin + length : blocks;
  const uint8_t* data = matrix.data + static_cast<int64_t>(tile) * (blocks / Form::kGroup) * Form::kBytes;
  const float inverse = inverse_factor<kType>(matrix);

  float total[kRows] = {};
  for (int block = begin; block < end; block += kAhead) {
    RowBlock<kType> own[kAhead];
    Header<kType> headers[kAhead / kShared];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = block + i < end ? block + i : end - 1;
      const uint8_t* group = data + static_cast<int64_t>(at / Form::kGroup) * Form::kBytes;
      own[i].load(group, at % Form::kGroup, lane);
      if (i % kShared == 0) headers[i / kShared].load(group, lane);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (block + i < end) {
        if constexpr (Form::kQuantised) {
          const int within = kShared == Form::kGroup ? i % kShared : (block + i) % Form::kGroup;
          const RowScale scale = row_scale(headers[i / kShared].scale(within, inverse));
          add_quantised<kType, kRows>(own[i], scale, block + i, in, first, total);
        } else {
          add_floats<kType, kRows>(own[i], block + i, in, first, total);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums.put((r * kSegments + segment) * kTileRows + lane, total[r]);
  __syncthreads();
  const int used = (blocks + length - 1) / length;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kTileRows; i += kThreads) {
    const int r = i / kTileRows, column = tile * kTileRows + i % kTileRows;
    if (first + r >= in.rows || column >= matrix.rows) continue;
    float sum = 0.0f;
    for (int part = 0; part < used; ++part) sum += sums.get((r * kSegments + part) * kTileRows + i % kTileRows);
    float* target = out + static_cast<int64_t>(first + r) * stride + column;
    *target = add ? *target + sum : sum;
  }
}

template <TensorType kType, int kRows>
void run(const Matrix& matrix, const Activations& in, float* out, int stride, bool add, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tile_count(matrix.rows)), static_cast<unsigned>((in.rows + kRows - 1) / kRows));
  ASSAY_LAUNCH((qlinear_rows<kType, kRows>), grid, kThreads, 0, stream, matrix, in, out, stride, add);
}

}  // namespace

void qlinear_decode(const Matrix& matrix, const Activations& in, float* out, int stride, bool add,
                    cudaStream_t stream) {
  with_type(matrix.type, [&](auto kind) {
    if (in.rows == 1) return run<kind(), 1>(matrix, in, out, stride, add, stream);
    if constexpr (Layout<kind()>::kQuantised) {
      if (in.rows <= 4) return run<kind(), 4>(matrix, in, out, stride, add, stream);
    }
    run<kind(), 8>(matrix, in, out, stride, add, stream);
  });
}

}  // namespace assay::cuda
