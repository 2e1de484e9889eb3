// argmax: the largest value first, then the lowest index that holds it.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {

int argmax(const float* x, int n) {
  // max(x, best) keeps `best` when x is NaN.
  __m256 best[4];
  for (__m256& each : best) each = _mm256_set1_ps(-__builtin_inff());
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int part = 0; part < 4; ++part) best[part] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * part), best[part]);
  }
  float largest = max_lanes(_mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3])));
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;

  const __m256 wanted = _mm256_set1_ps(largest);
  for (i = 0; i + 8 <= n; i += 8) {
    const int hits = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_EQ_OQ));
    if (hits != 0) return i + __builtin_ctz(static_cast<unsigned>(hits));
  }
  for (; i < n; ++i) {
    if (x[i] == largest) return i;
  }
  return 0;  // every value is NaN
}

}  // namespace assay::cpu
