// rope_halves: rotates the pairs (i, i + rope_dim / 2) of one head, eight pairs at a time.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

inline void rotate8(float* first, float* second, const float* cosine, const float* sine) {
  const __m256 a = _mm256_loadu_ps(first);
  const __m256 b = _mm256_loadu_ps(second);
  const __m256 c = _mm256_loadu_ps(cosine);
  const __m256 s = _mm256_loadu_ps(sine);
  _mm256_storeu_ps(first, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
  _mm256_storeu_ps(second, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
}

}  // namespace

void rope_halves(float* head, int rope_dim, const float* cosine, const float* sine) {
  const int half = rope_dim / 2;
  int i = 0;
  for (; i + 8 <= half; i += 8) rotate8(head + i, head + half + i, cosine + i, sine + i);
  if (i == half) return;
  float a[8] = {}, b[8] = {}, c[8] = {}, s[8] = {};
  const size_t left = static_cast<size_t>(half - i) * sizeof(float);
  __builtin_memcpy(a, head + i, left);
  __builtin_memcpy(b, head + half + i, left);
  __builtin_memcpy(c, cosine + i, left);
  __builtin_memcpy(s, sine + i, left);
  rotate8(a, b, c, s);
  __builtin_memcpy(head + i, a, left);
  __builtin_memcpy(head + half + i, b, left);
}

}  // namespace assay::cpu
