// rmsnorm: x / sqrt(mean(x^2) + epsilon) * weight; four running sums of eight lanes.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {

void rmsnorm(const float* x, const float* weight, int n, float epsilon, float* out) {
  __m256 squares[4] = {};
  int done = 0;
  for (; done + 32 <= n; done += 32) {
    for (int part = 0; part < 4; ++part) {
      const __m256 v = _mm256_loadu_ps(x + done + 8 * part);
      squares[part] = _mm256_fmadd_ps(v, v, squares[part]);
    }
  }
  for (int part = 0; done < n; done += 8, ++part) {
    const __m256 v = _mm256_loadu_ps(x + done);
    squares[part] = _mm256_fmadd_ps(v, v, squares[part]);
  }
  const __m256 total = _mm256_add_ps(_mm256_add_ps(squares[0], squares[1]), _mm256_add_ps(squares[2], squares[3]));
  const float mean = sum_lanes(total) / static_cast<float>(n);
  const __m256 inverse = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + epsilon))));
  for (int i = 0; i < n; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), inverse);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(weight + i)));
  }
}

}  // namespace assay::cpu
