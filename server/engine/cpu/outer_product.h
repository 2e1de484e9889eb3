// Sums of products, the one loop that attention's scores and weighted values have.
#pragma once

namespace assay::cpu {
namespace {

// total[i][j] += a[i] * b[j]. The smaller side is held in registers and the
// other passes through one, so that the sums fit beside them.
template <typename Lanes, int kA, int kB, typename LoadA, typename LoadB>
inline void outer_product(const LoadA& load_a, const LoadB& load_b, typename Lanes::Float (&total)[kA][kB]) {
  if constexpr (kA <= kB) {
    typename Lanes::Float a[kA];
#pragma GCC unroll 12
    for (int i = 0; i < kA; ++i) a[i] = load_a(i);
#pragma GCC unroll 12
    for (int j = 0; j < kB; ++j) {
      const typename Lanes::Float b = load_b(j);
#pragma GCC unroll 12
      for (int i = 0; i < kA; ++i) total[i][j] = Lanes::fma(a[i], b, total[i][j]);
    }
  } else {
    typename Lanes::Float b[kB];
#pragma GCC unroll 12
    for (int j = 0; j < kB; ++j) b[j] = load_b(j);
#pragma GCC unroll 12
    for (int i = 0; i < kA; ++i) {
      const typename Lanes::Float a = load_a(i);
#pragma GCC unroll 12
      for (int j = 0; j < kB; ++j) total[i][j] = Lanes::fma(a, b[j], total[i][j]);
    }
  }
}

}  // namespace
}  // namespace assay::cpu
