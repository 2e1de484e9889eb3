// A model on the device with its slots: what the C handle points to.
#pragma once

#include <memory>
#include <mutex>

#include "../assay_engine.h"
#include "../device_weights.h"
#include "../progress.h"
#include "../request.h"
#include "cache.cuh"
#include "forward.cuh"
#include "state.cuh"
#include "weights.cuh"

namespace assay::cuda {

// What is known of an engine from its options, a model's header and what the device has free: see ../opening.h.
struct Opening {
  // Error: the options break a rule, the model is not one that this engine serves, or it does not fit.
  explicit Opening(const assay_options& options);

  std::string isa;
  int threads;
  int slots;
  ModelFile file;
  Config config;
  int context;
  Holding holding;
  DeviceWeights planned;
};

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
  Engine(const Opening& opening, const Progress& progress);

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
