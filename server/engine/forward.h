// One pass of up to kPassRows tokens through the model.
//
// A pass is a list of segments, each consecutive positions of one slot. Every
// layer is a handful of phases (team.h), each a number of independent units that
// any thread may take. Which thread takes a unit, and
// which tokens share a pass, changes no bit of any token's result.
#pragma once

#include <memory>
#include <vector>

#include "cache.h"
#include "ops.h"
#include "team.h"
#include "weights.h"

namespace assay {

constexpr int kPassRows = 512;

struct Segment {
  int slot;
  int position;  // of its first row
  int first;     // row in the pass
  int count;
};

struct Pass {
  std::vector<int32_t> tokens;    // one a row
  std::vector<Segment> segments;  // cover the rows in order
  std::vector<int> wanted;        // rows whose logits are asked for
  float* logits;                  // [wanted][vocabulary]
  int32_t* greedy;                // [wanted]
};

class Forward {
 public:
  Forward(const Config& config, const Weights& weights, Cache& cache, const Ops& ops, Team& team, int slots,
          int context);
  ~Forward();

  // Computes the pass and writes keys, values, logits and greedy ids.
  void run(const Pass& pass);

 private:
  class Worker;
  struct Buffers;
  struct Plan;

  const Config& config_;
  const Weights& weights_;
  Cache& cache_;
  const Ops& ops_;
  Team& team_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace assay
