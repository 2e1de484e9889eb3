// Cosines and sines of rotations: a row for one token, and of every position, [position][rope_dim / 2].
//
// Pair i of a head turns by position * base^(-2i / rope_dim). A model that also sees pictures gives a token three
// positions (time, height, width); which one a pair turns by is interleaved: time, height, width, time ..., and time
// again where height or width have had as many pairs as their section says. In text the three are one.
#pragma once

#include <cmath>
#include <vector>

namespace assay {

constexpr int kRopeStreams = 3;

class RopeRows {
 public:
  // `sections`: pairs of each stream, or nullptr: all turn by the first.
  RopeRows(int rope_dim, double base, const int* sections) {
    for (int i = 0; i < rope_dim / 2; ++i) {
      const int stream = i % kRopeStreams;
      const bool own = sections != nullptr && stream != 0 && i < kRopeStreams * sections[stream];
      pairs_.push_back({std::pow(base, -2.0 * i / rope_dim), own ? stream : 0});
    }
  }

  // The row of a token at these positions.
  void write(const int (&positions)[kRopeStreams], float* cosine, float* sine) const {
    for (const Pair& pair : pairs_) {
      const double angle = positions[pair.stream] * pair.frequency;
      *cosine++ = static_cast<float>(std::cos(angle));
      *sine++ = static_cast<float>(std::sin(angle));
    }
  }

 private:
  struct Pair {
    double frequency;
    int stream;
  };
  std::vector<Pair> pairs_;
};

struct RopeTable {
  RopeTable(int positions, int rope_dim, double base, const int* sections = nullptr)
      : half(static_cast<size_t>(rope_dim / 2)),
        cosine(static_cast<size_t>(positions) * half),
        sine(static_cast<size_t>(positions) * half) {
    const RopeRows rows(rope_dim, base, sections);
    for (int position = 0; position < positions; ++position) {
      const size_t at = static_cast<size_t>(position) * half;
      rows.write({position, position, position}, cosine.data() + at, sine.data() + at);
    }
  }

  const float* cosines(int position) const { return cosine.data() + static_cast<size_t>(position) * half; }
  const float* sines(int position) const { return sine.data() + static_cast<size_t>(position) * half; }

  size_t half;
  std::vector<float> cosine;
  std::vector<float> sine;
};

}  // namespace assay
