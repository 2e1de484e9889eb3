// quantise: blocks of 32 values to int8 with one float scale and scale times their
// sum, then the residuals of the widest blocks in the same form.
#include "../widest.h"
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

inline void quantise_block(const __m256* v, int8_t* q, float* scale, float* sum) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the packs' lane order
  const float largest = max_lanes(
      _mm256_max_ps(_mm256_max_ps(absolute(v[0]), absolute(v[1])), _mm256_max_ps(absolute(v[2]), absolute(v[3]))));
  const __m256 inverse = _mm256_set1_ps(largest > 0.0f ? 127.0f / largest : 0.0f);
  __m256i rounded[4];
  for (int part = 0; part < 4; ++part) rounded[part] = _mm256_cvtps_epi32(_mm256_mul_ps(v[part], inverse));
  const int total =
      sum_lanes(_mm256_add_epi32(_mm256_add_epi32(rounded[0], rounded[1]), _mm256_add_epi32(rounded[2], rounded[3])));
  const __m256i low = _mm256_packs_epi32(rounded[0], rounded[1]);
  const __m256i high = _mm256_packs_epi32(rounded[2], rounded[3]);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  *scale = largest / 127.0f;
  *sum = *scale * static_cast<float>(total);
}

}  // namespace

void quantise(const float* x, int n, const QuantisedRow& row) {
  const int blocks = n / kBlock;
  for (int block = 0; block < blocks; ++block) {
    __m256 v[4];
    for (int part = 0; part < 4; ++part) v[part] = _mm256_loadu_ps(x + block * kBlock + 8 * part);
    quantise_block(v, row.q + block * kBlock, row.scale + block, row.sum + block);
  }
  find_widest(row.scale, blocks, row.refinements, row.refined);
  for (int extra = 0; extra < row.refinements; ++extra) {
    const int block = row.refined[extra];
    const __m256 scale = _mm256_set1_ps(row.scale[block]);
    __m256 residual[4];
    for (int part = 0; part < 4; ++part) {
      const int at = block * kBlock + 8 * part;
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row.q + at));
      const __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
      residual[part] = _mm256_fnmadd_ps(scale, q, _mm256_loadu_ps(x + at));
    }
    const int at = blocks + extra;
    quantise_block(residual, row.q + at * kBlock, row.scale + at, row.sum + at);
  }
}

}  // namespace assay::cpu
