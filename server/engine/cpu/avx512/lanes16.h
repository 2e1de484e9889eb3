// Sixteen float lanes of AVX-512, as the attention templates use them.
#pragma once

#include "../lanes8.h"

namespace assay::cpu {
namespace {

struct Lanes16 {
  using Float = __m512;
  using Pairs = __m512i;  // two numbers of 4 bits a lane
  static constexpr int width = 16;
  static constexpr int most_queries = 12;  // of a tile: 24 sums fit into 32 registers
  template <int kQueries>
  static constexpr int groups() {
    return kQueries <= 6 ? 4 : 2;
  }

  static Float zero() { return _mm512_setzero_ps(); }
  static Float all(float x) { return _mm512_set1_ps(x); }
  static Float all(const float* x) { return _mm512_set1_ps(*x); }
  static Float load(const float* x) { return _mm512_loadu_ps(x); }
  static Float load(const uint16_t* halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  }
  static Float load(const int8_t* bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
  static Pairs pairs(const uint8_t* bytes) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static Pairs indices() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  static Pairs upper(Pairs x) { return _mm512_srli_epi32(x, 4); }
  // Of each lane's low number, the lane of the table.
  static Float pick(Float table, Pairs x) { return _mm512_permutexvar_ps(x, table); }
  static Float low(Pairs x) { return _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32(15))); }
  static Float high(Pairs x) { return _mm512_cvtepi32_ps(upper(x)); }
  static void store(float* out, Float x) { _mm512_storeu_ps(out, x); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float fnma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  // Lanes below `count` of x, the others of `rest`.
  static Float first(int count, Float x, Float rest) {
    const __mmask16 kept = count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1u);
    return _mm512_mask_blend_ps(kept, rest, x);
  }
  // The reference's polynomial (ref/exp.cpp) with fused steps; x clamped to [-87, 88].
  static Float exp(Float x) {
    x = _mm512_min_ps(_mm512_max_ps(x, all(-87.0f)), all(88.0f));
    const Float n = _mm512_roundscale_ps(mul(x, all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    Float r = _mm512_fnmadd_ps(n, all(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, all(-2.12194440e-4f), r);
    Float p = all(1.9875691500e-4f);
    p = fma(p, r, all(1.3981999507e-3f));
    p = fma(p, r, all(8.3334519073e-3f));
    p = fma(p, r, all(4.1665795894e-2f));
    p = fma(p, r, all(1.6666665459e-1f));
    p = fma(p, r, all(5.0000001201e-1f));
    p = fma(p, mul(r, r), add(r, all(1.0f)));
    const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return mul(p, _mm512_castsi512_ps(exponent));
  }
  static float largest(Float x) { return max_lanes(_mm256_max_ps(low(x), high(x))); }
  static float total(Float x) { return sum_lanes(_mm256_add_ps(low(x), high(x))); }

 private:
  static __m256 low(Float x) { return _mm512_castps512_ps256(x); }
  static __m256 high(Float x) { return _mm512_extractf32x8_ps(x, 1); }
};

}  // namespace
}  // namespace assay::cpu
