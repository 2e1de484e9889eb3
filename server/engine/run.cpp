#include "run.h"

#include <cstring>

#include "error.h"
#include "half.h"

namespace assay {
namespace {

constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t bits_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

float half_at(const uint8_t* bytes) { return half_to_float(bits_at(bytes)); }

// 16 bytes of nibbles: values 0 to 15 low, 16 to 31 high; `offset` is added.
void read_nibbles(const uint8_t* pairs, int offset, Run& run) {
  for (int i = 0; i < 16; ++i) {
    run.integer[i] = static_cast<int8_t>((pairs[i] & 15) + offset);
    run.integer[16 + i] = static_cast<int8_t>((pairs[i] >> 4) + offset);
  }
}

// Bit i of 32 is the fifth of value i.
void add_fifth_bits(const uint8_t* bits, Run& run) {
  for (int i = 0; i < kRunValues; ++i) {
    run.integer[i] = static_cast<int8_t>(run.integer[i] + (((bits[i / 8] >> (i % 8)) & 1) << 4));
  }
}

// Q4_K and Q5_K: halves of scale and minimum, then eight scales and minima of six bits in 12 bytes.
void read_super_scales(const uint8_t* block, int at, Run& run) {
  const uint8_t* packed = block + 4;
  int scale, minimum;
  if (at < 4) {
    scale = packed[at] & 63;
    minimum = packed[at + 4] & 63;
  } else {
    scale = (packed[at + 4] & 15) | ((packed[at - 4] >> 6) << 4);
    minimum = (packed[at + 4] >> 4) | ((packed[at] >> 6) << 4);
  }
  run.scale[0] = run.scale[1] = half_at(block) * static_cast<float>(scale);
  run.minimum = -(half_at(block + 2) * static_cast<float>(minimum));
}

// Runs 2 n and 2 n + 1 of Q4_K and Q5_K share 32 bytes, the first in the low nibbles.
void read_super_nibbles(const uint8_t* nibbles, int at, Run& run) {
  const uint8_t* pairs = nibbles + at / 2 * 32;
  for (int i = 0; i < kRunValues; ++i) run.integer[i] = static_cast<int8_t>((pairs[i] >> (4 * (at % 2))) & 15);
}

void read_q6_k(const uint8_t* block, int at, Run& run) {
  const uint8_t* low = block + at / 4 * 64 + at % 2 * 32;
  const uint8_t* high = block + 128 + at / 4 * 32;
  for (int i = 0; i < kRunValues; ++i) {
    const int nibble = (low[i] >> (at % 4 / 2 * 4)) & 15;
    run.integer[i] = static_cast<int8_t>((nibble | (((high[i] >> (at % 4 * 2)) & 3) << 4)) - 32);
  }
  const float scale = half_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    run.scale[half] = scale * static_cast<float>(static_cast<int8_t>(block[192 + 2 * at + half]));
  }
}

void read_nvfp4(const uint8_t* block, float factor, Run& run) {
  for (int i = 0; i < 16; ++i) {
    run.integer[i] = kTwiceE2m1[block[2 + i] & 15];
    run.integer[16 + i] = kTwiceE2m1[block[2 + i] >> 4];
  }
  for (int half = 0; half < 2; ++half) run.scale[half] = e4m3_to_float(block[half]) / factor * 0.5f;
}

}  // namespace

bool has_minimum(TensorType type) {
  return type == TensorType::q4_1 || type == TensorType::q5_1 || type == TensorType::q4_k || type == TensorType::q5_k;
}

void read_run(TensorType type, float factor, const uint8_t* row, int64_t index, Run& run) {
  const TypeTraits stored = traits(type);
  const int block_runs = static_cast<int>(stored.block_values) / kRunValues;
  if (block_runs == 0) bad_argument(std::string("values of ") + stored.name + " are no runs of integers");
  const uint8_t* block = row + index / block_runs * stored.block_bytes;
  const int at = static_cast<int>(index % block_runs);
  run.minimum = 0.0f;
  switch (type) {
    case TensorType::q4_0:
      run.scale[0] = run.scale[1] = half_at(block);
      return read_nibbles(block + 2, -8, run);
    case TensorType::q4_1:
      run.scale[0] = run.scale[1] = half_at(block);
      run.minimum = half_at(block + 2);
      return read_nibbles(block + 4, 0, run);
    case TensorType::q5_0:
      run.scale[0] = run.scale[1] = half_at(block);
      read_nibbles(block + 6, -16, run);
      return add_fifth_bits(block + 2, run);
    case TensorType::q5_1:
      run.scale[0] = run.scale[1] = half_at(block);
      run.minimum = half_at(block + 2);
      read_nibbles(block + 8, 0, run);
      return add_fifth_bits(block + 4, run);
    case TensorType::q8_0:
      run.scale[0] = run.scale[1] = half_at(block);
      std::memcpy(run.integer, block + 2, kRunValues);
      return;
    case TensorType::q4_k:
      read_super_scales(block, at, run);
      return read_super_nibbles(block + 16, at, run);
    case TensorType::q5_k:
      read_super_scales(block, at, run);
      read_super_nibbles(block + 48, at, run);
      for (int i = 0; i < kRunValues; ++i) {
        run.integer[i] = static_cast<int8_t>(run.integer[i] + (((block[16 + i] >> at) & 1) << 4));
      }
      return;
    case TensorType::q6_k:
      return read_q6_k(block, at, run);
    case TensorType::w4_f16:
      run.scale[0] = run.scale[1] = half_at(block);
      return read_nibbles(block + 2 + 16 * at, -8, run);
    case TensorType::w4_bf16:
      run.scale[0] = run.scale[1] = bfloat_to_float(bits_at(block));
      return read_nibbles(block + 2 + 16 * at, -8, run);
    case TensorType::nvfp4:
      return read_nvfp4(block, factor, run);
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
      return;  // refused above
  }
}

}  // namespace assay
