// kv_write: one position's key and value, narrowed to half, into the cache's layout (ops.h).
#include "../half.h"
#include "ref.h"

namespace assay::ref {
namespace {

uint16_t narrow(float value) {
  value = value > kLargestHalf ? kLargestHalf : value;
  value = value < -kLargestHalf ? -kLargestHalf : value;
  return float_to_half(value);
}

}  // namespace

void kv_write(const float* key, const float* value, int head_dim, int position, const KvHead& head) {
  const size_t width = static_cast<size_t>(head_dim);
  uint16_t* keys = head.keys + static_cast<size_t>(position / kKeyLane) * width * kKeyLane + position % kKeyLane;
  uint16_t* values = head.values + static_cast<size_t>(position) * width;
  for (size_t i = 0; i < width; ++i) {
    keys[i * kKeyLane] = narrow(key[i]);
    values[i] = narrow(value[i]);
  }
}

}  // namespace assay::ref
