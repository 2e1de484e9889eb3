#include "engine.h"

#include "error.h"
#include "rewind.h"

namespace assay {

// The file is gone after loading: the packed weights are the only copy.
Engine::Engine(const assay_options& options) : Engine(Opening(options)) {}

Engine::Engine(const Opening& opening)
    : ops_(opening.ops),
      config_(opening.config),
      slots_(opening.slots),
      context_(opening.context),
      head_(opening.file.head()) {
  team_ = std::make_unique<Team>(opening.threads);
  weights_ = std::make_unique<Weights>(opening.file, config_, *team_);
  cache_ = std::make_unique<Cache>(config_, opening.kv, slots_, context_);
  delta_cache_ = std::make_unique<DeltaCache>(config_, slots_);
  forward_ = std::make_unique<Forward>(config_, *weights_, *cache_, *delta_cache_, *ops_, *team_, slots_, context_);
  metadata_ = std::make_unique<KeptMetadata>(opening.file);
}

void Engine::describe(assay_info& info) const {
  info.abi_version = ASSAY_ABI_VERSION;
  info.threads = team_->size();
  info.slots = slots_;
  info.context = context_;
  info.vocabulary = config_.vocabulary;
  info.prefill_chunk = kPassRows;
  info.weight_bytes = weights_->bytes_per_step();
  info.kv_bytes_per_position = cache_->bytes_per_position();
  const bool stateful = config_.count(LayerKind::delta) > 0;
  info.state_chunk = stateful ? kDeltaChunk : 0;
  info.rewind = stateful ? kRewind : 0;
  info.isa = ops_->isa;
  info.kv = kv_name(cache_->type());
  info.head = head_name(head_);
}

void Engine::fork(int source, int slot, int positions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_fork(source, slot, positions, limits(), [&](int each) { return held(each); });
  cache_->fork(source, slot, positions);
  delta_cache_->fork(source, slot, positions);
}

int Engine::length(int slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return slot < 0 || slot >= slots_ ? -1 : cache_->length(slot);
}

int Engine::rewindable(int slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return slot < 0 || slot >= slots_ ? -1 : delta_cache_->least(slot);
}

void Engine::step(const assay_chunk* chunks, size_t count, float* logits, int32_t* greedy, size_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_step(chunks, count, logits, greedy, rows, limits(), [&](int slot) { return held(slot); });
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    cache_->extend(chunk.slot, chunk.position, chunk.position + chunk.count);
    delta_cache_->keep(chunk.slot, chunk.position);
  }
  run_in_passes(chunks, count, logits, greedy, kPassRows, config_.vocabulary,
                [&](const Pass& pass) {
                  forward_->run(pass);
                  for (const Segment& segment : pass.segments) delta_cache_->write(segment.slot, segment.count);
                });
}

}  // namespace assay
