// One pass of up to kPassRows tokens through the model.
//
// A pass is a list of segments, each consecutive positions of one slot. Every
// layer is a handful of phases (team.h), each a number of independent units that
// any thread may take. Which thread takes a unit, and which tokens share a pass,
// changes no bit of any token's result.
#pragma once

#include <memory>

#include "cache.h"
#include "delta_cache.h"
#include "ops.h"
#include "pass_buffers.h"
#include "pass_plan.h"
#include "team.h"
#include "weights.h"

namespace assay {

class Forward {
 public:
  Forward(const Config& config, const Weights& weights, const Cache& cache, const DeltaCache& delta_cache,
          const Ops& ops, Team& team, int slots, int context);

  // Computes the pass and writes keys, values, states, logits and greedy ids. The blocks its positions
  // lie in belong to its slots (Cache::extend); the states' spans end where its segments begin.
  void run(const Pass& pass);

 private:
  friend class PassWorker;

  const Config& config_;
  const Weights& weights_;
  const Cache& cache_;
  const DeltaCache& delta_cache_;
  const Ops& ops_;
  Team& team_;
  PassBuffers buffers_;
};

}  // namespace assay
