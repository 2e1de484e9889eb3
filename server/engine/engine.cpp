#include "engine.h"

#include <algorithm>
#include <string>

#include "error.h"
#include "isa.h"

namespace assay {
namespace {

constexpr int kDefaultContext = 8192;
constexpr int kMostThreads = 256;
constexpr int kMostSlots = 1024;

int bounded(const char* what, int value, int most) {
  if (value < 1 || value > most) {
    bad_argument(std::string(what) + " is " + std::to_string(value) + ", not 1 to " + std::to_string(most));
  }
  return value;
}

int choose_context(int asked, int trained) {
  if (asked == 0) return std::min(trained, kDefaultContext);
  if (asked < 0 || asked > trained) {
    bad_argument("a context of " + std::to_string(asked) + " (the model has 1 to " + std::to_string(trained) + ")");
  }
  return asked;
}

KvType choose_kv(const char* asked) {
  const std::string name = asked == nullptr ? "f16" : asked;
  if (name == "f16") return KvType::f16;
  if (name == "int8") return KvType::int8;
  bad_argument("keys and values as '" + name + "', not 'f16' or 'int8'");
}

size_t logits_rows(const assay_chunk& chunk) {
  if (chunk.logits == ASSAY_LOGITS_NONE) return 0;
  return chunk.logits == ASSAY_LOGITS_LAST ? 1 : static_cast<size_t>(chunk.count);
}

}  // namespace

Engine::Engine(const assay_options& options)
    : ops_(&select_ops(options.isa)), slots_(bounded("slots", options.slots, kMostSlots)) {
  if (options.path == nullptr) bad_argument("no path");
  team_ = std::make_unique<Team>(bounded("threads", options.threads, kMostThreads));
  const Mapping mapping(options.path);  // gone after loading: the packed weights are the only copy
  const Gguf file(mapping.data(), mapping.size());
  config_ = read_config(file);
  context_ = choose_context(options.context, config_.context);
  weights_ = std::make_unique<Weights>(file, config_, *team_);
  cache_ = std::make_unique<Cache>(config_, choose_kv(options.kv), slots_, context_);
  forward_ = std::make_unique<Forward>(config_, *weights_, *cache_, *ops_, *team_, slots_, context_);
  keep_metadata(file);
}

void Engine::keep_metadata(const Gguf& file) {
  size_t size = 0;
  for (const Metadata& entry : file.metadata()) size += entry.key.size() + entry.byte_size;
  metadata_bytes_.reserve(size);  // no growth below: views into it stay good
  for (Metadata entry : file.metadata()) {
    const auto keep = [&](const void* bytes, size_t count) {
      const uint8_t* start = metadata_bytes_.data() + metadata_bytes_.size();
      const uint8_t* source = static_cast<const uint8_t*>(bytes);
      metadata_bytes_.insert(metadata_bytes_.end(), source, source + count);
      return start;
    };
    const uint8_t* key = keep(entry.key.data(), entry.key.size());
    entry.key = {reinterpret_cast<const char*>(key), entry.key.size()};
    entry.bytes = keep(entry.bytes, entry.byte_size);
    metadata_.push_back(entry);
  }
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
  info.isa = ops_->isa;
  info.kv = cache_->type() == KvType::f16 ? "f16" : "int8";
}

void Engine::check_slot(const std::string& name, int slot) const {
  if (slot < 0 || slot >= slots_) {
    bad_argument(name + " is of slot " + std::to_string(slot) + "; there are " + std::to_string(slots_));
  }
}

// Every rule of assay_step, before anything is written; the number of logits rows.
size_t Engine::check(const assay_chunk* chunks, size_t count) const {
  size_t rows = 0;
  std::vector<bool> seen(static_cast<size_t>(slots_), false);
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    const std::string name = "chunk " + std::to_string(index);
    check_slot(name, chunk.slot);
    if (seen[static_cast<size_t>(chunk.slot)])
      bad_argument("slot " + std::to_string(chunk.slot) + " is twice in one step");
    seen[static_cast<size_t>(chunk.slot)] = true;
    if (chunk.count < 1 || chunk.tokens == nullptr) bad_argument(name + " has no tokens");
    const int length = cache_->length(chunk.slot);
    if (chunk.position < 0 || chunk.position > length) {
      bad_argument(name + " begins at position " + std::to_string(chunk.position) + ", but the slot holds " +
                   std::to_string(length));
    }
    if (chunk.count > context_ - chunk.position) {
      bad_argument(name + " ends at position " + std::to_string(int64_t{chunk.position} + chunk.count) +
                   ", past the context of " + std::to_string(context_));
    }
    for (int32_t token = 0; token < chunk.count; ++token) {
      if (chunk.tokens[token] < 0 || chunk.tokens[token] >= config_.vocabulary) {
        bad_argument(name + " has the token " + std::to_string(chunk.tokens[token]) + "; the vocabulary has " +
                     std::to_string(config_.vocabulary));
      }
    }
    if (chunk.logits < ASSAY_LOGITS_NONE || chunk.logits > ASSAY_LOGITS_ALL) {
      bad_argument(name + " asks for logits of kind " + std::to_string(chunk.logits));
    }
    rows += logits_rows(chunk);
  }
  return rows;
}

void Engine::fork(int source, int slot, int positions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_slot("the source", source);
  check_slot("the fork", slot);
  const int length = cache_->length(source);
  if (positions < 0 || positions > length) {
    bad_argument("a fork of " + std::to_string(positions) + " positions; the slot holds " + std::to_string(length));
  }
  cache_->fork(source, slot, positions);
}

int Engine::length(int slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return slot < 0 || slot >= slots_ ? -1 : cache_->length(slot);
}

void Engine::step(const assay_chunk* chunks, size_t count, float* logits, int32_t* greedy, size_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count != 0 && chunks == nullptr) bad_argument("no chunks");
  const size_t wanted = check(chunks, count);
  if (wanted != rows) {
    bad_argument("room for " + std::to_string(rows) + " rows of logits, " + std::to_string(wanted) + " asked for");
  }
  if (rows != 0 && (logits == nullptr || greedy == nullptr)) bad_argument("no buffer for the logits");

  Pass pass;
  const auto flush = [&] {
    pass.logits = logits;
    pass.greedy = greedy;
    forward_->run(pass);
    logits += pass.wanted.size() * static_cast<size_t>(config_.vocabulary);
    greedy += pass.wanted.size();
    pass = Pass();
  };
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    cache_->extend(chunk.slot, chunk.position, chunk.position + chunk.count);
    for (int done = 0; done < chunk.count;) {
      const int first = static_cast<int>(pass.tokens.size());
      const int taken = std::min(chunk.count - done, kPassRows - first);
      pass.tokens.insert(pass.tokens.end(), chunk.tokens + done, chunk.tokens + done + taken);
      pass.segments.push_back({chunk.slot, chunk.position + done, first, taken});
      for (int row = 0; row < taken; ++row) {
        const bool last = done + row + 1 == chunk.count;
        if (chunk.logits == ASSAY_LOGITS_ALL || (chunk.logits == ASSAY_LOGITS_LAST && last)) {
          pass.wanted.push_back(first + row);
        }
      }
      done += taken;
      if (first + taken == kPassRows) flush();
    }
  }
  if (!pass.tokens.empty()) flush();
}

}  // namespace assay
