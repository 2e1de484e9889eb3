// A loaded model with its slots: what the C handle points to.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "assay_engine.h"
#include "cache.h"
#include "config.h"
#include "delta_cache.h"
#include "forward.h"
#include "opening.h"
#include "request.h"
#include "team.h"
#include "weights.h"

namespace assay {

class Engine {
 public:
  explicit Engine(const assay_options& options);

  void describe(assay_info& info) const;
  const std::vector<Metadata>& metadata() const { return metadata_->entries(); }
  void fork(int source, int slot, int positions);
  int length(int slot);
  int rewindable(int slot);
  void step(const assay_chunk* chunks, size_t count, float* logits, int32_t* greedy, size_t rows);

 private:
  explicit Engine(const Opening& opening);

  Limits limits() const { return {slots_, context_, config_.vocabulary}; }
  Held held(int slot) const { return {cache_->length(slot), delta_cache_->least(slot)}; }

  const Ops* ops_;
  std::unique_ptr<Team> team_;
  Config config_{};
  int slots_;
  int context_;
  HeadForm head_;
  std::unique_ptr<KeptMetadata> metadata_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<DeltaCache> delta_cache_;
  std::unique_ptr<Forward> forward_;
  std::mutex mutex_;
};

}  // namespace assay
