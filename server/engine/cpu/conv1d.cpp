// conv1d: each channel's weighted sum over consecutive positions, oldest first, then SiLU; eight channels at a time.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {

void conv1d(const float* const* rows, const float* weights, size_t stride, int taps, int n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int i = 0; i < n; i += 8) {
    __m256 total = _mm256_setzero_ps();
    for (int tap = 0; tap < taps; ++tap) {
      const __m256 weight = _mm256_loadu_ps(weights + static_cast<size_t>(tap) * stride + i);
      total = _mm256_fmadd_ps(weight, _mm256_loadu_ps(rows[tap] + i), total);
    }
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), total));
    _mm256_storeu_ps(out + i, _mm256_div_ps(total, _mm256_add_ps(one, e)));
  }
}

}  // namespace assay::cpu
