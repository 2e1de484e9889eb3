// pack: rows of a GGUF matrix to tiles (packed.cuh); one thread moves one block of one row.
#include <type_traits>

#include "packed.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;

// Source blocks are aligned to two bytes only.
__device__ __forceinline__ uint32_t word_at(const uint8_t* bytes) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(bytes);
  return two_halves(halves[0], halves[1]);
}

template <TensorType kType>
__global__ void __launch_bounds__(kThreads)
    pack_blocks(const uint8_t* __restrict__ source, int rows, int blocks, int source_bytes, int first,
                uint8_t* __restrict__ packed) {
  using Form = Layout<kType>;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(rows) * blocks) return;
  const int row = first + static_cast<int>(index / blocks);
  const int64_t block = index % blocks;
  const uint8_t* from = source + index * source_bytes;
  uint8_t* to = packed + (static_cast<int64_t>(row / kTileRows) * blocks + block) * Form::kBytes;
  const int lane = row % kTileRows;
  if (Form::kQuantised) {
    uint16_t* scales = reinterpret_cast<uint16_t*>(to + Form::kPlanes * kPlaneBytes + lane * Form::kScaleBytes);
    const uint16_t* given = reinterpret_cast<const uint16_t*>(from);
    scales[0] = given[0];
    if (Form::kMinimum) scales[1] = given[1];
    from += Form::kScaleBytes;
  }
#pragma unroll
  for (int plane = 0; plane < Form::kPlanes; ++plane) {
    uint4 words = make_uint4(word_at(from), word_at(from + 4), word_at(from + 8), word_at(from + 12));
    if (kType == TensorType::q4_0) {
      const uint32_t flip = 0x88888888u;  // n - 8 as a signed nibble
      words = make_uint4(words.x ^ flip, words.y ^ flip, words.z ^ flip, words.w ^ flip);
    }
    *reinterpret_cast<uint4*>(to + plane * kPlaneBytes + lane * 16) = words;
    from += 16;
  }
}

}  // namespace

void pack(TensorType type, const uint8_t* source, int rows, int columns, int first, uint8_t* packed,
          cudaStream_t stream) {
  const TypeTraits source_type = traits(type);
  const int source_bytes = static_cast<int>(kBlock / source_type.block_values * source_type.block_bytes);
  const int blocks = block_count(columns);
  const int64_t count = static_cast<int64_t>(rows) * blocks;
  const dim3 grid(static_cast<unsigned>((count + kThreads - 1) / kThreads));
  with_type(type, [&](auto kind) {
    ASSAY_LAUNCH((pack_blocks<kind()>), grid, kThreads, 0, stream, source, rows, blocks, source_bytes, first, packed);
  });
}

}  // namespace assay::cuda
