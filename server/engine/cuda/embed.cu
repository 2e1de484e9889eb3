// embed: rows of the packed table as floats; one block of threads a row.
#include <type_traits>

#include "kernels.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 128;

// Column `column` of row `lane` of a tile's block.
template <TensorType kType>
__device__ __forceinline__ float value_of(const uint8_t* block, int lane, int column) {
  using Form = Layout<kType>;
  if constexpr (kType == TensorType::f32) {
    return reinterpret_cast<const float*>(block + column / 4 * kPlaneBytes + lane * 16)[column % 4];
  } else if constexpr (kType == TensorType::f16) {
    return half_value(reinterpret_cast<const uint16_t*>(block + column / 8 * kPlaneBytes + lane * 16)[column % 8]);
  } else {
    const uint16_t* scales =
        reinterpret_cast<const uint16_t*>(block + Form::kPlanes * kPlaneBytes + lane * Form::kScaleBytes);
    const float scale = half_value(scales[0]);
    if constexpr (kType == TensorType::q8_0) {
      const int8_t q = static_cast<int8_t>(block[column / 16 * kPlaneBytes + lane * 16 + column % 16]);
      return static_cast<float>(q) * scale;
    } else {
      const uint8_t pair = block[lane * 16 + column % 16];
      const int nibble = column < 16 ? pair & 15 : pair >> 4;
      if constexpr (Form::kMinimum) {
        return __fmaf_rn(static_cast<float>(nibble), scale, half_value(scales[1]));
      } else {
        return static_cast<float>((nibble ^ 8) - 8) * scale;
      }
    }
  }
}

template <TensorType kType>
__global__ void __launch_bounds__(kThreads)
    embed_rows(Matrix table, const int32_t* __restrict__ tokens, float* __restrict__ out) {
  const int token = tokens[blockIdx.x];
  const int blocks = block_count(table.columns);
  const uint8_t* tile = table.data + static_cast<int64_t>(token / kTileRows) * blocks * Layout<kType>::kBytes;
  float* row = out + static_cast<int64_t>(blockIdx.x) * table.columns;
  for (int i = static_cast<int>(threadIdx.x); i < table.columns; i += kThreads) {
    const uint8_t* block = tile + static_cast<int64_t>(i / kBlock) * Layout<kType>::kBytes;
    row[i] = value_of<kType>(block, token % kTileRows, i % kBlock);
  }
}

}  // namespace

void embed(const Matrix& table, const int32_t* tokens, int rows, float* out, cudaStream_t stream) {
  with_type(table.type, [&](auto kind) {
    ASSAY_LAUNCH((embed_rows<kind()>), dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, table, tokens, out);
  });
}

}  // namespace assay::cuda
