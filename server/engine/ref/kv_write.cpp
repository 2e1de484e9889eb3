// kv_write: one position's key and value into a block (ops.h), narrowed to its type.
#include <algorithm>
#include <cmath>

#include "../half.h"
#include "ref.h"

namespace assay::ref {
namespace {

uint16_t narrow(float value) {
  value = value > kLargestHalf ? kLargestHalf : value;
  value = value < -kLargestHalf ? -kLargestHalf : value;
  return float_to_half(value);
}

float largest(const float* values, size_t count) {
  float most = 0.0f;
  for (size_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
  return most;
}

// Writes int8 values `step` apart and returns their scale.
float write_bytes(const float* values, size_t count, int8_t* out, size_t step) {
  const float most = largest(values, count);
  const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
  for (size_t i = 0; i < count; ++i) out[i * step] = static_cast<int8_t>(std::nearbyint(values[i] * inverse));
  return most / 127.0f;
}

// Where a group's scale lies, its minimum `apart` behind it.
void write_scale(const NarrowGroup& group, uint16_t* out, size_t apart) {
  out[0] = group.scale;
  out[apart] = group.minimum;
}

void write_groups(const float* key, const float* value, size_t width, size_t position, uint8_t* block) {
  const size_t groups = width / kKvGroup;
  uint8_t* keys = block + position / kKeyLane * width / 2 * kKeyLane + position % kKeyLane;
  uint8_t* values = block + (kPositionBlock + position) * width / 2;
  uint16_t* key_scales = reinterpret_cast<uint16_t*>(block + kPositionBlock * width) + position;
  uint16_t* value_scales = key_scales - position + groups * 2 * kPositionBlock + position * groups * 2;
  float mixed[kMostHeadDim];
  std::copy_n(key, width, mixed);
  mix_head(mixed, static_cast<int>(width));
  for (size_t g = 0; g < groups; ++g) {
    const NarrowGroup k = narrow_group(mixed + g * kKvGroup), v = narrow_group(value + g * kKvGroup);
    for (size_t i = 0; i < kKvGroup / 2; ++i) {
      keys[(g * kKvGroup / 2 + i) * kKeyLane] = static_cast<uint8_t>(k.n[2 * i] | k.n[2 * i + 1] << 4);
      values[g * kKvGroup / 2 + i] = static_cast<uint8_t>(v.n[i] | v.n[kKvGroup / 2 + i] << 4);
    }
    write_scale(k, key_scales + g * 2 * kPositionBlock, kPositionBlock);
    write_scale(v, value_scales + g * 2, 1);
  }
}

}  // namespace

void kv_write(const float* key, const float* value, int head_dim, KvType type, int position, uint8_t* block) {
  const size_t width = static_cast<size_t>(head_dim);
  const size_t key_at = static_cast<size_t>(position / kKeyLane) * width * kKeyLane + position % kKeyLane;
  const size_t value_at = (kPositionBlock + static_cast<size_t>(position)) * width;
  if (type == KvType::f16) {
    uint16_t* halves = reinterpret_cast<uint16_t*>(block);
    for (size_t i = 0; i < width; ++i) {
      halves[key_at + i * kKeyLane] = narrow(key[i]);
      halves[value_at + i] = narrow(value[i]);
    }
    return;
  }
  if (type == KvType::q4) return write_groups(key, value, width, static_cast<size_t>(position), block);
  int8_t* bytes = reinterpret_cast<int8_t*>(block);
  float* scales = reinterpret_cast<float*>(block + 2 * kPositionBlock * width);
  scales[position] = write_bytes(key, width, bytes + key_at, kKeyLane);
  scales[kPositionBlock + position] = write_bytes(value, width, bytes + value_at, 1);
}

}  // namespace assay::ref
