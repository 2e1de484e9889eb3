// A loaded model with its slots: what the C handle points to.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "assay_engine.h"
#include "cache.h"
#include "config.h"
#include "forward.h"
#include "model_file.h"
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
  void step(const assay_chunk* chunks, size_t count, float* logits, int32_t* greedy, size_t rows);

 private:
  Limits limits() const { return {slots_, context_, config_.vocabulary}; }

  const Ops* ops_;
  std::unique_ptr<Team> team_;
  Config config_{};
  int slots_;
  int context_;
  std::unique_ptr<KeptMetadata> metadata_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Forward> forward_;
  std::mutex mutex_;
};

}  // namespace assay
