// sigmoid_mul: x / (1 + exp(-gate)), in place.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {

void sigmoid_mul(const float* gate, int n, float* x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int i = 0; i < n; i += 8) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), _mm256_loadu_ps(gate + i)));
    _mm256_storeu_ps(x + i, _mm256_div_ps(_mm256_loadu_ps(x + i), _mm256_add_ps(one, e)));
  }
}

}  // namespace assay::cpu
