// A model on the device with its slots: what the C handle points to.
#pragma once

#include <memory>
#include <mutex>

#include "../assay_engine.h"
#include "../request.h"
#include "cache.cuh"
#include "forward.cuh"
#include "state.cuh"
#include "weights.cuh"

namespace assay::cuda {

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
  Limits limits() const { return {slots_, context_, config_.vocabulary}; }
  Held held(int slot) const { return {cache_->length(slot), state_->least(slot)}; }

  std::string isa_;
  int threads_;
  int slots_;
  int context_;
  HeadForm head_;
  Config config_{};
  std::unique_ptr<KeptMetadata> metadata_;
  Stream stream_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Forward> forward_;
  std::mutex mutex_;
};

}  // namespace assay::cuda
