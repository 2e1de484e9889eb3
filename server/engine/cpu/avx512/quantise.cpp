// quantise, 16 values a register: first every block's scale, sixteen at a time, then
// its bytes and their sum, then the residuals of the widest blocks.
#include "../../widest.h"
#include "../simd.h"
#include "avx512.h"

namespace assay::cpu::avx512 {
namespace {

constexpr int kBatch = 16;  // blocks whose scales are divided together

inline float largest_of(const float* x) {
  const __m512 sizes = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x)), _mm512_abs_ps(_mm512_loadu_ps(x + 16)));
  return max_lanes(_mm256_max_ps(_mm512_castps512_ps256(sizes), _mm512_extractf32x8_ps(sizes, 1)));
}

// 127 / largest, or 0 where a block is all zeros.
inline __m512 inverses(__m512 largest) {
  const __mmask16 some = _mm512_cmp_ps_mask(largest, _mm512_setzero_ps(), _CMP_GT_OQ);
  return _mm512_maskz_div_ps(some, _mm512_set1_ps(127.0f), largest);
}

// 32 integers to bytes, saturated to int8; returns their sum.
inline float narrow(__m512i low, __m512i high, int8_t* q) {
  const __m256i bytes = _mm256_set_m128i(_mm512_cvtsepi32_epi8(high), _mm512_cvtsepi32_epi8(low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
  return static_cast<float>(sum_lanes(sums));
}

inline void narrow_block(const float* x, float inverse, int8_t* q, float* sum) {
  const __m512 factor = _mm512_set1_ps(inverse);
  *sum = narrow(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor)),
                _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), factor)), q);
}

inline __m512i residual_of(const float* x, __m512 inverse, const int8_t* q) {
  const __m512 whole =
      _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q))));
  const __m512 left = _mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(x), inverse), whole);
  const __m512i nearest = _mm512_cvtps_epi32(_mm512_mul_ps(left, _mm512_set1_ps(256.0f)));
  return _mm512_max_epi32(_mm512_min_epi32(nearest, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127));
}

}  // namespace

void quantise(const float* x, int n, const QuantisedRow& row) {
  const int blocks = n / kBlock;
  for (int first = 0; first < blocks; first += kBatch) {
    const int count = blocks - first < kBatch ? blocks - first : kBatch;
    alignas(64) float largest[kBatch] = {};
    for (int i = 0; i < count; ++i) largest[i] = largest_of(x + (first + i) * kBlock);
    const __m512 sizes = _mm512_load_ps(largest);
    const __mmask16 present = static_cast<__mmask16>((1u << count) - 1u);
    _mm512_mask_storeu_ps(row.scale + first, present, _mm512_div_ps(sizes, _mm512_set1_ps(127.0f)));
    alignas(64) float inverse[kBatch];
    _mm512_store_ps(inverse, inverses(sizes));
    for (int i = 0; i < count; ++i) {
      const int block = first + i;
      narrow_block(x + block * kBlock, inverse[i], row.q + block * kBlock, row.sum + block);
    }
  }
  find_widest(row.scale, blocks, row.refinements, row.refined);
  for (int extra = 0; extra < row.refinements; ++extra) {
    const int block = row.refined[extra];
    const float* at = x + block * kBlock;
    const int8_t* q = row.q + block * kBlock;
    const __m512 inverse = inverses(_mm512_set1_ps(largest_of(at)));
    const float sum = narrow(residual_of(at, inverse, q), residual_of(at + 16, inverse, q + 16),
                             row.q + (blocks + extra) * kBlock);
    row.sum[block] += sum * 0x1p-8f;
    row.scale[blocks + extra] = row.scale[block] * 0x1p-8f;
    row.sum[blocks + extra] = 0.0f;
  }
}

}  // namespace assay::cpu::avx512
