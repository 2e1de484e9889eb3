// Eight float lanes of AVX2, as the attention templates use them.
#pragma once

#include "simd.h"

namespace assay::cpu {
namespace {

struct Lanes8 {
  using Float = __m256;
  using Pairs = __m256i;  // two numbers of 4 bits a lane
  static constexpr int width = 8;
  static constexpr int most_queries = 6;  // of a tile: 12 sums fit into 16 registers
  template <int kQueries>
  static constexpr int groups() {
    return kQueries <= 3 ? 4 : 2;
  }

  static Float zero() { return _mm256_setzero_ps(); }
  static Float all(float x) { return _mm256_set1_ps(x); }
  static Float all(const float* x) { return _mm256_broadcast_ss(x); }
  static Float load(const float* x) { return _mm256_loadu_ps(x); }
  static Float load(const uint16_t* halves) { return load_half(halves); }
  static Float load(const int8_t* bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
  }
  static Pairs pairs(const uint8_t* bytes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  }
  static Float low(Pairs x) { return _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32(15))); }
  static Float high(Pairs x) { return _mm256_cvtepi32_ps(_mm256_srli_epi32(x, 4)); }
  static void store(float* out, Float x) { _mm256_storeu_ps(out, x); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  // Lanes below `count` of x, the others of `rest`.
  static Float first(int count, Float x, Float rest) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_blendv_ps(rest, x, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes)));
  }
  static Float exp(Float x) { return exp8(x); }
  static float largest(Float x) { return max_lanes(x); }
  static float total(Float x) { return sum_lanes(x); }
};

}  // namespace
}  // namespace assay::cpu
