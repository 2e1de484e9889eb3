// quantise: blocks of 32 values to int8 with one float scale, and scale times their sum.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {

void quantise(const float* x, int n, int8_t* q, float* scale, float* sum) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the packs' lane order
  for (int block = 0; block < n / kBlock; ++block, x += kBlock, q += kBlock) {
    __m256 v[4];
    for (int part = 0; part < 4; ++part) v[part] = _mm256_loadu_ps(x + 8 * part);
    const float largest = max_lanes(_mm256_max_ps(_mm256_max_ps(absolute(v[0]), absolute(v[1])),
                                                  _mm256_max_ps(absolute(v[2]), absolute(v[3]))));
    const __m256 inverse = _mm256_set1_ps(largest > 0.0f ? 127.0f / largest : 0.0f);
    __m256i rounded[4];
    for (int part = 0; part < 4; ++part) rounded[part] = _mm256_cvtps_epi32(_mm256_mul_ps(v[part], inverse));
    const int total = sum_lanes(_mm256_add_epi32(_mm256_add_epi32(rounded[0], rounded[1]),
                                                 _mm256_add_epi32(rounded[2], rounded[3])));
    const __m256i low = _mm256_packs_epi32(rounded[0], rounded[1]);
    const __m256i high = _mm256_packs_epi32(rounded[2], rounded[3]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
    scale[block] = largest / 127.0f;
    sum[block] = scale[block] * static_cast<float>(total);
  }
}

}  // namespace assay::cpu
