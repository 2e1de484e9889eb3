// quantise: blocks of 32 values to int8 with one float scale, and their sum; then
// the residuals of the widest blocks at 1 / 256 of the scale.
#include "../widest.h"
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

// 32 integers within int8 to bytes, in order; returns their sum.
inline int narrow(const __m256i* rounded, int8_t* q) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the packs' lane order
  const __m256i low = _mm256_packs_epi32(rounded[0], rounded[1]);
  const __m256i high = _mm256_packs_epi32(rounded[2], rounded[3]);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  return sum_lanes(
      _mm256_add_epi32(_mm256_add_epi32(rounded[0], rounded[1]), _mm256_add_epi32(rounded[2], rounded[3])));
}

inline void refine_block(const float* x, const int8_t* q, __m256 inverse, int8_t* residual, float* sum) {
  const __m256i most = _mm256_set1_epi32(127);
  __m256i rounded[4];
  for (int part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + 8 * part));
    const __m256 whole = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    const __m256 left = _mm256_sub_ps(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * part), inverse), whole);
    const __m256i nearest = _mm256_cvtps_epi32(_mm256_mul_ps(left, _mm256_set1_ps(256.0f)));
    rounded[part] = _mm256_max_epi32(_mm256_min_epi32(nearest, most), _mm256_set1_epi32(-127));
  }
  *sum += static_cast<float>(narrow(rounded, residual)) * 0x1p-8f;
}

inline float largest_of(const float* x) {
  __m256 most = _mm256_setzero_ps();
  for (int part = 0; part < 4; ++part) most = _mm256_max_ps(absolute(_mm256_loadu_ps(x + 8 * part)), most);
  return max_lanes(most);
}

}  // namespace

void quantise(const float* x, int n, const QuantisedRow& row) {
  const int blocks = n / kBlock;
  for (int block = 0; block < blocks; ++block) {
    const float* at = x + block * kBlock;
    const float largest = largest_of(at);
    const __m256 inverse = _mm256_set1_ps(largest > 0.0f ? 127.0f / largest : 0.0f);
    __m256i rounded[4];
    for (int part = 0; part < 4; ++part) {
      rounded[part] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(at + 8 * part), inverse));
    }
    row.sum[block] = static_cast<float>(narrow(rounded, row.q + block * kBlock));
    row.scale[block] = largest / 127.0f;
  }
  find_widest(row.scale, blocks, row.refinements, row.refined);
  for (int extra = 0; extra < row.refinements; ++extra) {
    const int block = row.refined[extra];
    const float* at = x + block * kBlock;
    const float largest = largest_of(at);
    const __m256 inverse = _mm256_set1_ps(largest > 0.0f ? 127.0f / largest : 0.0f);
    refine_block(at, row.q + block * kBlock, inverse, row.q + (blocks + extra) * kBlock, row.sum + block);
    row.scale[blocks + extra] = row.scale[block] * 0x1p-8f;
    row.sum[blocks + extra] = 0.0f;
  }
}

}  // namespace assay::cpu
