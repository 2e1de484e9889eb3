// silu_mul: gate / (1 + exp(-gate)) * up.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {

void silu_mul(const float* gate, const float* up, int n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int i = 0; i < n; i += 8) {
    const __m256 g = _mm256_loadu_ps(gate + i);
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), g));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
  }
}

}  // namespace assay::cpu
