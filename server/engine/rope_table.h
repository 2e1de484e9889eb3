// Cosines and sines of every position's rotation, [position][rope_dim / 2].
#pragma once

#include <cmath>
#include <vector>

namespace assay {

struct RopeTable {
  RopeTable(int positions, int rope_dim, double base) : half(static_cast<size_t>(rope_dim / 2)) {
    cosine.reserve(static_cast<size_t>(positions) * half);
    sine.reserve(static_cast<size_t>(positions) * half);
    std::vector<double> frequency;
    for (size_t i = 0; i < half; ++i) {
      frequency.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dim)));
    }
    for (int position = 0; position < positions; ++position) {
      for (const double each : frequency) {
        cosine.push_back(static_cast<float>(std::cos(position * each)));
        sine.push_back(static_cast<float>(std::sin(position * each)));
      }
    }
  }

  const float* cosines(int position) const { return cosine.data() + static_cast<size_t>(position) * half; }
  const float* sines(int position) const { return sine.data() + static_cast<size_t>(position) * half; }

  size_t half;
  std::vector<float> cosine;
  std::vector<float> sine;
};

}  // namespace assay
