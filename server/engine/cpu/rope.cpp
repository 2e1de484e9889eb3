// rope: rotates the interleaved pairs (2i, 2i + 1) of one head, four pairs at a time.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

inline __m256 doubled(const float* four) {
  const __m256i order = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(four)), order);
}

// (a, b) -> (a c - b s, b c + a s) in every pair of lanes.
inline __m256 rotate(__m256 pairs, __m256 cosine, __m256 sine) {
  const __m256 swapped = _mm256_permute_ps(pairs, 0xb1);
  return _mm256_fmaddsub_ps(pairs, cosine, _mm256_mul_ps(swapped, sine));
}

}  // namespace

void rope(float* head, int rope_dim, const float* cosine, const float* sine) {
  const int half = rope_dim / 2;
  int i = 0;
  for (; i + 4 <= half; i += 4) {
    float* at = head + 2 * i;
    _mm256_storeu_ps(at, rotate(_mm256_loadu_ps(at), doubled(cosine + i), doubled(sine + i)));
  }
  if (i == half) return;
  float values[8] = {}, c[4] = {}, s[4] = {};
  const size_t left = static_cast<size_t>(half - i);
  __builtin_memcpy(values, head + 2 * i, left * 2 * sizeof(float));
  __builtin_memcpy(c, cosine + i, left * sizeof(float));
  __builtin_memcpy(s, sine + i, left * sizeof(float));
  _mm256_storeu_ps(values, rotate(_mm256_loadu_ps(values), doubled(c), doubled(s)));
  __builtin_memcpy(head + 2 * i, values, left * 2 * sizeof(float));
}

}  // namespace assay::cpu
