// delta_gates: how much each value head forgets and learns at a row.
//
// A few values a row, so every backend of the CPU uses these. softplus is made of
// our own exponential and logarithm: the same bits whatever the system's libm.
#include <cmath>

#include "../half.h"
#include "ref.h"

namespace assay::ref {
namespace {

// ln x of a normal x above 0: x = m 2^e with m about 1, ln m = 2 artanh((m - 1) / (m + 1)).
float log(float x) {
  uint32_t bits = float_to_bits(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float m = bits_to_float((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356f) {
    m *= 0.5f;
    ++exponent;
  }
  const float s = (m - 1.0f) / (m + 1.0f);
  const float square = s * s;
  float p = 2.0f / 9.0f;
  p = p * square + 2.0f / 7.0f;
  p = p * square + 2.0f / 5.0f;
  p = p * square + 2.0f / 3.0f;
  const float e = static_cast<float>(exponent);
  return e * 0.693359375f + (e * -2.12194440e-4f + (p * square * s + 2.0f * s));
}

// ln(1 + t), t at least 0; what 1 + t loses of a small t is made good.
float log1p(float t) {
  const float sum = 1.0f + t;
  if (sum == 1.0f) return t;
  return log(sum) * (t / (sum - 1.0f));
}

float softplus(float x) { return (x > 0.0f ? x : 0.0f) + log1p(exp(-std::fabs(x))); }

}  // namespace

void delta_gates(const float* alpha, const float* beta, const float* a, const float* bias, int n, float* decay,
                 float* learned) {
  for (int i = 0; i < n; ++i) {
    decay[i] = a[i] * softplus(alpha[i] + bias[i]);
    learned[i] = 1.0f / (1.0f + exp(-beta[i]));
  }
}

}  // namespace assay::ref
