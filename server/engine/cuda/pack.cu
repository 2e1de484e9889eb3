// pack: rows of a matrix as they lie in a file to tiles (packed.cuh); one thread moves one group of one row.
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

// Where a row's group goes.
template <TensorType kType>
struct Target {
  using Form = Layout<kType>;
  uint8_t* group;
  int lane;

  __device__ __forceinline__ void word(int plane, int t, uint32_t value) const {
    reinterpret_cast<uint32_t*>(group + plane * kPlaneBytes + lane * 16)[t] = value;
  }
  __device__ __forceinline__ void high(int block, int index, uint32_t value) const {
    uint8_t* words = group + Form::kHighAt + block * Form::kHighBytes;
    reinterpret_cast<uint32_t*>(words)[lane * Form::kHighWords + index] = value;
  }
  // A row has 16 bytes of the header at most; what is beyond lies behind all rows' first part.
  __device__ __forceinline__ void header(int half, uint16_t value) const {
    constexpr int kFirst = Form::kHeaderBytes < 16 ? Form::kHeaderBytes / 2 : 8;
    uint16_t* first = reinterpret_cast<uint16_t*>(group + Form::kHeaderAt);
    if (half < kFirst) {
      first[lane * kFirst + half] = value;
    } else {
      first[kTileRows * kFirst + lane] = value;
    }
  }
};

// 32 bits, one a column in order, as high bits lie (unpack.cuh).
__device__ __forceinline__ uint32_t high_bits(uint32_t bits) {
  uint32_t high = 0;
#pragma unroll
  for (int four = 0; four < 8; ++four) {  // 4 h + t
    high |= ((bits >> (4 * four) & 15u) * 0x00204081u & 0x01010101u) << four;
  }
  return high;
}

// Four E2M1 pairs of bytes as unpack.cuh has them; a negative zero becomes zero.
__device__ __forceinline__ uint32_t e2m1_word(uint32_t pairs) {
  uint32_t word = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t low = pairs >> (8 * j) & 15u, high = pairs >> (8 * j + 4) & 15u;
    word |= (low & 7u) << (4 * j) | (high & 7u) << (16 + 4 * j);
    if (low > 8u) word |= 0x80u << (8 * j);
    if (high > 8u) word |= 0x08u << (8 * j);
  }
  return word;
}

// Types whose row is a header and planes in the order of the file, a block or W4's group.
template <TensorType kType>
__device__ __forceinline__ void move_planes(const uint8_t* from, const Target<kType>& to) {
  using Form = Layout<kType>;
  constexpr bool kFlip = Form::kW4 || kType == TensorType::q4_0;  // n - 8 as a signed nibble
#pragma unroll
  for (int i = 0; i < Form::kHeaderBytes / 2; ++i) to.header(i, reinterpret_cast<const uint16_t*>(from)[i]);
  from += Form::kHeaderBytes;
  if constexpr (Form::kHighWords == 1) {
    const uint32_t high = high_bits(word_at(from));
    to.high(0, 0, kType == TensorType::q5_0 ? ~high : high);
    from += 4;
  }
#pragma unroll
  for (int plane = 0; plane < Form::kGroup * Form::kPlanes; ++plane) {
#pragma unroll
    for (int t = 0; t < 4; ++t, from += 4) {
      const uint32_t word = word_at(from);
      to.word(plane, t, kType == TensorType::nvfp4 ? e2m1_word(word) : kFlip ? word ^ 0x88888888u : word);
    }
  }
}

// Sixteen bytes of one nibble of each column (`first`: columns 0-15, 16 bytes on: 16-31) as a word of a plane.
__device__ __forceinline__ uint32_t joined(const uint8_t* first, int t, bool upper) {
  const uint32_t left = word_at(first + 4 * t), right = word_at(first + 16 + 4 * t);
  if (upper) return (left >> 4 & 0x0f0f0f0fu) | (right & 0xf0f0f0f0u);
  return (left & 0x0f0f0f0fu) | (right & 0x0f0f0f0fu) << 4;
}

// Q4_K and Q5_K: half scale, half minimum, 12 bytes of 6-bit scales and minima, [32 bytes of high bits,] nibbles of
// 32 columns below those of the next 32.
template <TensorType kType>
__device__ __forceinline__ void move_super(const uint8_t* from, const Target<kType>& to) {
  constexpr bool kHigh = Layout<kType>::kHighWords != 0;
  to.header(0, reinterpret_cast<const uint16_t*>(from)[0]);
  to.header(1, reinterpret_cast<const uint16_t*>(from)[1]);
  const uint8_t *six = from + 4, *bits = from + 16, *nibbles = bits + (kHigh ? 32 : 0);
  uint32_t low[2] = {0, 0}, high = 0;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    const uint32_t scale =
        block < 4 ? six[block] & 63u : (six[block + 4] & 15u) | static_cast<uint32_t>(six[block - 4] >> 6) << 4;
    const uint32_t minimum = block < 4 ? six[block + 4] & 63u
                                       : static_cast<uint32_t>(six[block + 4] >> 4) |
                                             static_cast<uint32_t>(six[block] >> 6) << 4;
    low[block / 4] |= ((scale & 15u) | (minimum & 15u) << 4) << (block % 4 * 8);
    high |= (scale >> 4 | minimum >> 4 << 2) << (block * 4);
    uint32_t fifth = 0;
    for (int t = 0; t < 4; ++t) to.word(block, t, joined(nibbles + block / 2 * 32, t, block % 2 != 0));
    if constexpr (kHigh) {
      for (int four = 0; four < 8; ++four) fifth |= (word_at(bits + 4 * four) >> block & 0x01010101u) << four;
      to.high(block, 0, fifth);
    }
  }
  for (int i = 0; i < 2; ++i) {
    to.header(2 + 2 * i, static_cast<uint16_t>(low[i]));
    to.header(3 + 2 * i, static_cast<uint16_t>(low[i] >> 16));
  }
  to.header(6, static_cast<uint16_t>(high));
  to.header(7, static_cast<uint16_t>(high >> 16));
}

// Q6_K: for each 128 columns 64 bytes of nibbles (columns 0-63 below 64-127); then for each 32 bytes of the upper two
// bits (columns 0-31 below 32-63 below ...); 16 signed scales, half scale.
__device__ __forceinline__ void move_six(const uint8_t* from, const Target<TensorType::q6_k>& to) {
  const uint8_t *bits = from + 128, *scales = from + 192;
  for (int block = 0; block < 8; ++block) {
    const int part = block % 4;
    const uint8_t* nibbles = from + block / 4 * 64 + part % 2 * 32;
    for (int t = 0; t < 4; ++t) to.word(block, t, joined(nibbles, t, part >= 2));
    for (int half = 0; half < 2; ++half) {
      uint32_t high = 0;
      for (int t = 0; t < 4; ++t) {
        high |= (word_at(bits + block / 4 * 32 + half * 16 + 4 * t) >> (2 * part) & 0x03030303u) << (2 * t);
      }
      to.high(block, half, high ^ 0xaaaaaaaau);
    }
  }
  for (int i = 0; i < 9; ++i) to.header(i, reinterpret_cast<const uint16_t*>(scales)[i]);
}

template <TensorType kType>
__global__ void __launch_bounds__(kThreads)
    pack_groups(const uint8_t* __restrict__ source, int rows, int groups, int source_bytes, int first,
                uint8_t* __restrict__ packed) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(rows) * groups) return;
  const int row = first + static_cast<int>(index / groups);
  const int64_t group = static_cast<int64_t>(row / kTileRows) * groups + index % groups;
  const Target<kType> to{packed + group * Layout<kType>::kBytes, row % kTileRows};
  const uint8_t* from = source + index * source_bytes;
  if constexpr (kType == TensorType::q6_k) {
    move_six(from, to);
  } else if constexpr (Layout<kType>::kSuper) {
    move_super<kType>(from, to);
  } else {
    move_planes<kType>(from, to);
  }
}

}  // namespace

void pack(TensorType type, const uint8_t* source, int rows, int columns, int first, uint8_t* packed,
          cudaStream_t stream) {
  const TypeTraits source_type = traits(type);
  with_type(type, [&](auto kind) {
    constexpr int kColumns = Layout<kind()>::kGroup * kBlock;
    const int source_bytes = kColumns / static_cast<int>(source_type.block_values) *
                             static_cast<int>(source_type.block_bytes);
    const int groups = columns / kColumns;
    const int64_t count = static_cast<int64_t>(rows) * groups;
    const dim3 grid(static_cast<unsigned>((count + kThreads - 1) / kThreads));
    ASSAY_LAUNCH((pack_groups<kind()>), grid, kThreads, 0, stream, source, rows, groups, source_bytes, first, packed);
  });
}

}  // namespace assay::cuda
