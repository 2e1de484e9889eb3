// qlinear, decode form: a few rows of activations times every row of the matrix, at the speed of memory.
//
// A block of threads takes one tile: a lane a row of it, a warp a segment of the
// columns (linear.cuh). A warp reads 512 bytes of weights at once, several blocks
// ahead, and every lane the same activations; integers are multiplied four at a
// time (dp4a). Matrices of floats use this form for any number of rows.
#include <type_traits>

#include "linear.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = kSegments * kWarp;

// One row's part of a tile's block.
template <TensorType kType>
struct RowBlock {
  uint4 plane[Layout<kType>::kPlanes];
  uint32_t scale;

  __device__ __forceinline__ void load(const uint8_t* block, int lane) {
    using Form = Layout<kType>;
#pragma unroll
    for (int i = 0; i < Form::kPlanes; ++i) {
      plane[i] = __ldg(reinterpret_cast<const uint4*>(block + i * kPlaneBytes) + lane);
    }
    const uint8_t* scales = block + Form::kPlanes * kPlaneBytes + lane * Form::kScaleBytes;
    if constexpr (Form::kScaleBytes == 4) scale = __ldg(reinterpret_cast<const uint32_t*>(scales));
    if constexpr (Form::kScaleBytes == 2) scale = __ldg(reinterpret_cast<const uint16_t*>(scales));
  }
};

__device__ __forceinline__ int dot4(uint32_t a, uint32_t b, int total) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), total);
}

// The exact dot product with 32 bytes of activations.
__device__ __forceinline__ float dot(const uint32_t (&weights)[8], const uint4* q) {
  const uint4 first = __ldg(q), second = __ldg(q + 1);
  int total = dot4(weights[0], first.x, kFloatDisguise);
  total = dot4(weights[1], first.y, total);
  total = dot4(weights[2], first.z, total);
  total = dot4(weights[3], first.w, total);
  total = dot4(weights[4], second.x, total);
  total = dot4(weights[5], second.y, total);
  total = dot4(weights[6], second.z, total);
  return exact_float(dot4(weights[7], second.w, total));
}

template <TensorType kType, int kRows>
__device__ __forceinline__ void add_quantised(const RowBlock<kType>& own, int block, const Activations& in, int first,
                                              float (&total)[kRows]) {
  uint32_t weights[8];
  const uint32_t words[4] = {own.plane[0].x, own.plane[0].y, own.plane[0].z, own.plane[0].w};
  if constexpr (kType == TensorType::q8_0) {
    const uint32_t more[4] = {own.plane[1].x, own.plane[1].y, own.plane[1].z, own.plane[1].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i] = words[i];
      weights[4 + i] = more[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i] = low_columns<kType>(words[i]);
      weights[4 + i] = high_columns<kType>(words[i]);
    }
  }
  const WeightScale scale = weight_scale<kType>(own.scale);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + r < in.rows ? first + r : in.rows - 1;
    const int64_t at = static_cast<int64_t>(block) * in.stride + row;
    const float2 activation = __ldg(in.scale + at);
    float product = dot(weights, in.q + 2 * at);
    if (is_refined(activation.x)) product = refined_product(product, dot(weights, in.residual + 2 * at));
    total[r] = add_block<kType>(total[r], product, scale, activation);
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
          weight = half_value(static_cast<uint16_t>(words[c / 2] >> (c % 2 * 16)));
        }
        total[r] = __fmaf_rn(weight, __ldg(x + c), total[r]);
      }
    }
  }
}

template <TensorType kType, int kRows>
__global__ void __launch_bounds__(kThreads)
    qlinear_rows(Matrix matrix, Activations in, float* __restrict__ out, int stride, bool add) {
  constexpr int kAhead = Layout<kType>::kPlanes > 2 ? 1 : kRows > 4 || Layout<kType>::kPlanes > 1 ? 4 : 8;
  ASSAY_STATIC_SHARED(arena, kSegments * kTileRows * kRows * 4);
  const Shared<float> sums = arena.template take<float>(kSegments * kTileRows * kRows);
  const int lane = lane_index(), segment = warp_index();
  const int tile = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * kRows;
  const int blocks = block_count(matrix.columns), length = segment_blocks(blocks);
  const int begin = segment * length, end = begin + length < blocks ? begin + length : blocks;
  const uint8_t* data = matrix.data + static_cast<int64_t>(tile) * blocks * Layout<kType>::kBytes;

  float total[kRows] = {};
  for (int block = begin; block < end; block += kAhead) {
    RowBlock<kType> own[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = block + i < end ? block + i : end - 1;
      own[i].load(data + static_cast<int64_t>(at) * Layout<kType>::kBytes, lane);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (block + i < end) {
        if constexpr (Layout<kType>::kQuantised) {
          add_quantised<kType, kRows>(own[i], block + i, in, first, total);
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
      if (in.rows == 2) return run<kind(), 2>(matrix, in, out, stride, add, stream);
      if (in.rows <= 4) return run<kind(), 4>(matrix, in, out, stride, add, stream);
    }
    run<kind(), 8>(matrix, in, out, stride, add, stream);
  });
}

}  // namespace assay::cuda
