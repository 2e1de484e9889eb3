// Stores a position's key and value in a block (ops.h), for any number of interleaved positions.
#pragma once

#include "../ops.h"
#include "simd.h"

namespace assay::cpu {
namespace {

constexpr float kLargestHalfValue = 65504.0f;

inline __m128i narrow(const float* values) {
  const __m256 v = _mm256_loadu_ps(values);
  const __m256 most = _mm256_set1_ps(kLargestHalfValue);
  const __m256 clamped = _mm256_max_ps(_mm256_min_ps(v, most), _mm256_sub_ps(_mm256_setzero_ps(), most));
  return _mm256_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT);
}

// Eight values as int8 with a scale's inverse.
inline int64_t narrow(const float* values, __m256 inverse) {
  const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values), inverse));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
  return _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
}

inline float largest_of(const float* values, int count) {
  __m256 most = _mm256_setzero_ps();
  for (int i = 0; i < count; i += 8) most = _mm256_max_ps(most, absolute(_mm256_loadu_ps(values + i)));
  return max_lanes(most);
}

template <int kLane>
void write_halves(const float* key, const float* value, int head_dim, int position, uint8_t* block) {
  uint16_t* keys = reinterpret_cast<uint16_t*>(block);
  uint16_t* values = keys + (kPositionBlock + position) * head_dim;
  keys += position / kLane * head_dim * kLane + position % kLane;
  for (int i = 0; i < head_dim; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i), narrow(value + i));
    uint16_t lanes[8];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), narrow(key + i));
    for (int lane = 0; lane < 8; ++lane) keys[(i + lane) * kLane] = lanes[lane];
  }
}

template <int kLane>
void write_bytes(const float* key, const float* value, int head_dim, int position, uint8_t* block) {
  uint8_t* keys = block + position / kLane * head_dim * kLane + position % kLane;
  uint8_t* values = block + (kPositionBlock + position) * head_dim;
  float* scales = reinterpret_cast<float*>(block + 2 * kPositionBlock * head_dim) + position;
  const float key_most = largest_of(key, head_dim);
  const float value_most = largest_of(value, head_dim);
  scales[0] = key_most / 127.0f;
  scales[kPositionBlock] = value_most / 127.0f;
  const __m256 key_inverse = _mm256_set1_ps(key_most > 0.0f ? 127.0f / key_most : 0.0f);
  const __m256 value_inverse = _mm256_set1_ps(value_most > 0.0f ? 127.0f / value_most : 0.0f);
  for (int i = 0; i < head_dim; i += 8) {
    const int64_t eight = narrow(value + i, value_inverse);
    __builtin_memcpy(values + i, &eight, sizeof eight);
    const uint64_t lanes = static_cast<uint64_t>(narrow(key + i, key_inverse));
    for (int lane = 0; lane < 8; ++lane) keys[(i + lane) * kLane] = static_cast<uint8_t>(lanes >> (8 * lane));
  }
}

// Keys and values at 4 bits (kv_q4.h).
template <int kLane>
void write_groups(const float* key, const float* value, int head_dim, int position, uint8_t* block) {
  const int groups = head_dim / kKvGroup;
  uint8_t* keys = block + position / kLane * head_dim / 2 * kLane + position % kLane;
  uint8_t* values = block + (kPositionBlock + position) * head_dim / 2;
  uint16_t* key_scales = reinterpret_cast<uint16_t*>(block + kPositionBlock * head_dim);
  uint16_t* value_scales = key_scales + (kPositionBlock + position) * groups * 2;
  float mixed[kMostHeadDim];
  __builtin_memcpy(mixed, key, static_cast<size_t>(head_dim) * sizeof(float));
  mix_head(mixed, head_dim);
  key = mixed;
  for (int g = 0; g < groups; ++g, key += kKvGroup, value += kKvGroup) {
    const NarrowGroup k = narrow_group(key), v = narrow_group(value);
    for (int i = 0; i < kKvGroup / 2; ++i) {
      keys[(g * kKvGroup / 2 + i) * kLane] = static_cast<uint8_t>(k.n[2 * i] | k.n[2 * i + 1] << 4);
      values[g * kKvGroup / 2 + i] = static_cast<uint8_t>(v.n[i] | v.n[kKvGroup / 2 + i] << 4);
    }
    key_scales[g * 2 * kPositionBlock + position] = k.scale;
    key_scales[(g * 2 + 1) * kPositionBlock + position] = k.minimum;
    value_scales[g * 2] = v.scale;
    value_scales[g * 2 + 1] = v.minimum;
  }
}

template <int kLane>
inline void write_position(const float* key, const float* value, int head_dim, KvType type, int position,
                           uint8_t* block) {
  if (type == KvType::f16) {
    write_halves<kLane>(key, value, head_dim, position, block);
  } else if (type == KvType::q4) {
    write_groups<kLane>(key, value, head_dim, position, block);
  } else {
    write_bytes<kLane>(key, value, head_dim, position, block);
  }
}

}  // namespace
}  // namespace assay::cpu
