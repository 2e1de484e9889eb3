#include "engine.cuh"

#include "../plan.h"
#include "device_name.cuh"

namespace assay::cuda {
namespace {

uint64_t free_bytes() {
  size_t available = 0, total = 0;
  ASSAY_CUDA(cudaMemGetInfo(&available, &total));
  return available;
}

}  // namespace

Opening::Opening(const assay_options& options)
    : isa(use_device(options.isa)),
      threads(bounded("threads", options.threads, kMostThreads)),
      slots(bounded("slots", options.slots, kMostSlots)),
      file(options),
      config(read_config(file)),
      context(choose_context(options.context, config.context)),
      holding(choose_holding(options, config)),
      planned(file, config) {
  require_columns(config);
  require_fit(memory_plan(planned, config, holding), free_bytes(), options.memory_bytes);
}

// The file is gone after loading: the device holds the only copy.
Engine::Engine(const assay_options& options) : Engine(Opening(options), Progress(options)) {}

Engine::Engine(const Opening& opening, const Progress& progress)
    : isa_(opening.isa),
      threads_(opening.threads),
      slots_(opening.slots),
      context_(opening.context),
      head_(opening.file.head()),
      config_(opening.config) {
  weights_ = std::make_unique<Weights>(opening.planned, config_, stream_, progress);
  cache_ = std::make_unique<Cache>(CacheSizes(config_, opening.holding), slots_, stream_);
  state_ = std::make_unique<State>(StateSizes(config_, slots_), config_, slots_, stream_);
  forward_ = std::make_unique<Forward>(config_, *weights_, *cache_, *state_, stream_,
                                       WorkspaceSizes(config_, slots_, context_), context_);
  metadata_ = std::make_unique<KeptMetadata>(opening.file);
}

void Engine::describe(assay_info& info) const {
  info.abi_version = ASSAY_ABI_VERSION;
  info.threads = threads_;
  info.slots = slots_;
  info.context = context_;
  info.vocabulary = config_.vocabulary;
  info.prefill_chunk = kMostRows;
  info.weight_bytes = weights_->bytes_per_step();
  info.kv_bytes_per_position = cache_->bytes_per_position();
  const bool stateful = config_.count(LayerKind::delta) > 0;
  info.state_chunk = stateful ? kDeltaChunk : 0;
  info.rewind = stateful ? kRewind : 0;
  info.isa = isa_.c_str();
  info.kv = kv_name(cache_->type());
  info.head = head_name(head_);
}

void Engine::fork(int source, int slot, int positions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  use_device(nullptr);
  check_fork(source, slot, positions, limits(), [&](int each) { return held(each); });
  cache_->fork(source, slot, positions);
  state_->fork(source, slot, positions);
  stream_.wait();
}

int Engine::length(int slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return slot < 0 || slot >= slots_ ? -1 : cache_->length(slot);
}

int Engine::rewindable(int slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return slot < 0 || slot >= slots_ ? -1 : state_->least(slot);
}

void Engine::step(const assay_chunk* chunks, size_t count, float* logits, int32_t* greedy, size_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  use_device(nullptr);
  check_step(chunks, count, logits, greedy, rows, limits(), [&](int slot) { return held(slot); });
  size_t wanted = 0;
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    wanted += cache_->wanted(chunk.slot, chunk.position, chunk.position + chunk.count);
  }
  cache_->require(wanted);
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    cache_->extend(chunk.slot, chunk.position, chunk.position + chunk.count);
  }
  run_in_passes(chunks, count, logits, greedy, kMostRows, config_.vocabulary,
                [&](const Pass& pass) { forward_->run(pass); });
}

}  // namespace assay::cuda
