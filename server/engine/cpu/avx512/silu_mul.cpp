// silu_mul: gate / (1 + exp(-gate)) * up, 16 lanes, then eight where n is no multiple of 16.
#include "avx512.h"
#include "lanes16.h"

namespace assay::cpu::avx512 {

void silu_mul(const float* gate, const float* up, int n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int i = 0; i < n; i += 16) {
    const __mmask16 present = n - i >= 16 ? 0xffff : 0xff;
    const __m512 g = _mm512_maskz_loadu_ps(present, gate + i);
    const __m512 e = Lanes16::exp(_mm512_sub_ps(_mm512_setzero_ps(), g));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, e));
    _mm512_mask_storeu_ps(out + i, present, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(present, up + i)));
  }
}

}  // namespace assay::cpu::avx512
