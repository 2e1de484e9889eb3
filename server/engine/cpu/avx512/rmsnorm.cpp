// rmsnorm: x / sqrt(mean(x^2) + epsilon) * weight; two running sums of 16 lanes.
#include "../simd.h"
#include "avx512.h"

namespace assay::cpu::avx512 {
namespace {

// Lanes that there are from `i` on.
inline __mmask16 present(int n, int i) { return n - i >= 16 ? 0xffff : n - i >= 8 ? 0xff : 0; }

}  // namespace

void rmsnorm(const float* x, const float* weight, int n, float epsilon, float* out) {
  __m512 squares[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int i = 0; i < n; i += 32) {
    for (int part = 0; part < 2; ++part) {
      const __m512 v = _mm512_maskz_loadu_ps(present(n, i + 16 * part), x + i + 16 * part);
      squares[part] = _mm512_fmadd_ps(v, v, squares[part]);
    }
  }
  const __m512 total = _mm512_add_ps(squares[0], squares[1]);
  const float mean =
      sum_lanes(_mm256_add_ps(_mm512_castps512_ps256(total), _mm512_extractf32x8_ps(total, 1))) / static_cast<float>(n);
  const __m512 inverse = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + epsilon))));
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = present(n, i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), inverse);
    _mm512_mask_storeu_ps(out + i, lanes, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, weight + i)));
  }
}

}  // namespace assay::cpu::avx512
