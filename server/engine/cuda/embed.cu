// embed: rows of the packed table as floats; one block of threads a row.
//
// Values are those of dequantise.h, bit for bit, but for the last rounding of the safetensors
// forms: the products that qlinear multiplies with, as on the processor.
#include <type_traits>

#include "unpack.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 128;

// Column `column` of the integers of row `lane` of a tile's block (unpack.cuh).
template <TensorType kType>
__device__ __forceinline__ int integer_of(const uint8_t* planes, const uint8_t* high, int lane, int column) {
  constexpr int kHighWords = Layout<kType>::kHighWords;
  const int half = column / 16, t = column % 16 / 4;
  const uint8_t* row = planes + lane * 16 + (kType == TensorType::q8_0 ? half * kPlaneBytes : 0);
  const uint32_t word = reinterpret_cast<const uint32_t*>(row)[t];
  uint32_t bytes = word;
  if constexpr (kType != TensorType::q8_0) {
    const uint32_t* more = reinterpret_cast<const uint32_t*>(high) + lane * kHighWords;
    const uint32_t bits = kHighWords == 0 ? 0u : more[kHighWords == 2 ? half : 0];
    bytes = half == 0 ? low_columns<kType>(word, bits, t) : high_columns<kType>(word, bits, t);
  }
  return static_cast<int8_t>(bytes >> (column % 4 * 8));
}

// Column `column` of row `lane` of block `block` of a tile's group.
template <TensorType kType>
__device__ __forceinline__ float value_of(const uint8_t* group, int block, int lane, int column, float factor) {
  using Form = Layout<kType>;
  const uint8_t* planes = group + block * Form::kBlockBytes;
  if constexpr (kType == TensorType::f32) {
    return reinterpret_cast<const float*>(planes + column / 4 * kPlaneBytes + lane * 16)[column % 4];
  } else if constexpr (Form::kSixteenBits) {
    const uint16_t bits = reinterpret_cast<const uint16_t*>(planes + column / 8 * kPlaneBytes + lane * 16)[column % 8];
    return kType == TensorType::bf16 ? bfloat_value(bits) : half_value(bits);
  } else {
    const uint8_t* high = group + Form::kHighAt + block * Form::kHighBytes;
    const float q = static_cast<float>(integer_of<kType>(planes, high, lane, column));
    Header<kType> header;
    header.load(group, lane);
    const WeightScale scale = header.scale(block, 1.0f);
    const float own = Form::kScaling == Scaling::halves && column >= 16 ? scale.second : scale.first;
    if constexpr (Form::kScaling == Scaling::minimum) return __fmaf_rn(q, own, scale.second);
    if constexpr (kType == TensorType::nvfp4) return q * __fdiv_rn(own, factor);
    return q * own;
  }
}

template <TensorType kType>
__global__ void __launch_bounds__(kThreads)
    embed_rows(Matrix table, const int32_t* __restrict__ tokens, float* __restrict__ out) {
  const int token = tokens[blockIdx.x];
  using Form = Layout<kType>;
  const int groups = block_count(table.columns) / Form::kGroup;
  const uint8_t* tile = table.data + static_cast<int64_t>(token / kTileRows) * groups * Form::kBytes;
  float* row = out + static_cast<int64_t>(blockIdx.x) * table.columns;
  for (int i = static_cast<int>(threadIdx.x); i < table.columns; i += kThreads) {
    const int block = i / kBlock;
    const uint8_t* group = tile + static_cast<int64_t>(block / Form::kGroup) * Form::kBytes;
    row[i] = value_of<kType>(group, block % Form::kGroup, token % kTileRows, i % kBlock, table.factor);
  }
}

}  // namespace

void embed(const Matrix& table, const int32_t* tokens, int rows, float* out, cudaStream_t stream) {
  with_type(table.type, [&](auto kind) {
    ASSAY_LAUNCH((embed_rows<kind()>), dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, table, tokens, out);
  });
}

}  // namespace assay::cuda
