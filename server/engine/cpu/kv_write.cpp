// kv_write: one position's key and value, narrowed to half, into the cache's layout (ops.h).
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

constexpr float kLargest = 65504.0f;

inline __m128i narrow(const float* values) {
  const __m256 v = _mm256_loadu_ps(values);
  const __m256 clamped = _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(kLargest)), _mm256_set1_ps(-kLargest));
  return _mm256_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT);
}

}  // namespace

void kv_write(const float* key, const float* value, int head_dim, int position, const KvHead& head) {
  const size_t width = static_cast<size_t>(head_dim);
  uint16_t* keys = head.keys + static_cast<size_t>(position / kKeyLane) * width * kKeyLane + position % kKeyLane;
  uint16_t* values = head.values + static_cast<size_t>(position) * width;
  for (size_t i = 0; i < width; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i), narrow(value + i));
    uint16_t lanes[8];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), narrow(key + i));
    for (size_t lane = 0; lane < 8; ++lane) keys[(i + lane) * kKeyLane] = lanes[lane];
  }
}

}  // namespace assay::cpu
