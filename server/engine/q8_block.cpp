#include "q8_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"

namespace assay {

void quantise_q8(const float* values, uint8_t* block) {
  uint32_t bits = 0;  // of the largest magnitude: as integers they have the same order, NaN above all
  for (int i = 0; i < kQ8Values; ++i) bits = std::max(bits, float_to_bits(values[i]) & 0x7fffffffu);
  const float largest = bits_to_float(bits);
  const float scale = largest / 127.0f;
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  const uint16_t half = float_to_half(scale);
  std::memcpy(block, &half, sizeof half);
  uint8_t* integers = block + sizeof half;
  if (!std::isfinite(largest) || !std::isfinite(inverse)) {
    std::memset(integers, 0, kQ8Values);
    return;
  }
  for (int i = 0; i < kQ8Values; ++i) {
    const float quotient = values[i] * inverse;
    const float magnitude = std::fabs(quotient);
    const int below = static_cast<int>(magnitude);  // at most 127
    const int nearest = below + (magnitude - static_cast<float>(below) >= 0.5f ? 1 : 0);
    integers[i] = static_cast<uint8_t>(quotient < 0.0f ? -nearest : nearest);
  }
}

}  // namespace assay
