// The rules of assay_open, assay_step and assay_fork, and how a step is cut into passes: the same for every device.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "assay_engine.h"
#include "error.h"
#include "model_file.h"
#include "ops.h"
#include "pass_plan.h"
#include "workspace.h"

namespace assay {

constexpr int kDefaultContext = 8192;
constexpr int kMostThreads = 256;
constexpr int kMostSlots = 1024;

inline int bounded(const char* what, int value, int most) {
  if (value < 1 || value > most) {
    bad_argument(std::string(what) + " is " + std::to_string(value) + ", not 1 to " + std::to_string(most));
  }
  return value;
}

inline int choose_context(int asked, int trained) {
  if (asked == 0) return std::min(trained, kDefaultContext);
  if (asked < 0 || asked > trained) {
    bad_argument("a context of " + std::to_string(asked) + " (the model has 1 to " + std::to_string(trained) + ")");
  }
  return asked;
}

inline const char* kv_name(KvType type) {
  return type == KvType::f16 ? "f16" : type == KvType::int8 ? "int8" : "q4";
}

inline KvType choose_kv(const char* asked, int head_dim) {
  const std::string name = asked == nullptr ? kv_name(KvType::f16) : asked;
  for (const KvType type : {KvType::f16, KvType::int8, KvType::q4}) {
    if (name != kv_name(type)) continue;
    if (type == KvType::q4 && head_dim % kKvGroup != 0) {
      bad_argument("keys and values as 'q4' of heads of " + std::to_string(head_dim) + ", no multiple of " +
                   std::to_string(kKvGroup));
    }
    return type;
  }
  bad_argument("keys and values as '" + name + "', not 'f16', 'int8' or 'q4'");
}

// How a model is held as the options ask.
inline Holding choose_holding(const assay_options& options, const Config& config) {
  const int slots = bounded("slots", options.slots, kMostSlots);
  if (options.kept_slots < 0 || options.kept_slots >= slots) {
    bad_argument("kept_slots is " + std::to_string(options.kept_slots) + " of " + std::to_string(slots) + " slots");
  }
  if (options.kept_positions < 0) bad_argument("kept_positions is " + std::to_string(options.kept_positions));
  return {choose_kv(options.kv, config.head_dim), slots, choose_context(options.context, config.context),
          options.kept_slots, options.kept_positions};
}

// A file's metadata, in memory of its own: the file may go.
class KeptMetadata {
 public:
  explicit KeptMetadata(const ModelFile& file) {
    size_t size = 0;
    for (const Metadata& entry : file.entries()) size += entry.key.size() + entry.byte_size;
    bytes_.reserve(size);  // no growth below: views into it stay good
    for (Metadata entry : file.entries()) {
      const uint8_t* key = keep(entry.key.data(), entry.key.size());
      entry.key = {reinterpret_cast<const char*>(key), entry.key.size()};
      entry.bytes = keep(entry.bytes, entry.byte_size);
      entries_.push_back(entry);
    }
  }
  KeptMetadata(KeptMetadata&&) = default;
  KeptMetadata& operator=(KeptMetadata&&) = default;

  const std::vector<Metadata>& entries() const { return entries_; }

 private:
  const uint8_t* keep(const void* data, size_t count) {
    const uint8_t* start = bytes_.data() + bytes_.size();
    const uint8_t* source = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), source, source + count);
    return start;
  }

  std::vector<uint8_t> bytes_;
  std::vector<Metadata> entries_;
};

// What a slot holds, and the fewest positions above 0 that it can be taken back to (rewind.h).
struct Held {
  Held(int length, int least = 0) : length(length), least(least) {}

  int length;
  int least;
};

// What requests are held against. `lengths(slot)` is what a slot holds.
struct Limits {
  int slots;
  int context;
  int vocabulary;
};

inline void check_slot(const std::string& name, int slot, const Limits& limits) {
  if (slot < 0 || slot >= limits.slots) {
    bad_argument(name + " is of slot " + std::to_string(slot) + "; there are " + std::to_string(limits.slots));
  }
}

inline void check_taken_back(const std::string& what, int position, const Held& held) {
  if (position != 0 && position < held.least) {
    bad_argument(what + " position " + std::to_string(position) + ", but of the " + std::to_string(held.length) +
                 " positions that the slot holds only those from " + std::to_string(held.least) +
                 " on, or all, can be forgotten");
  }
}

template <typename Lengths>
void check_chunk(const std::string& name, const assay_chunk& chunk, const Limits& limits, const Lengths& lengths) {
  if (chunk.count < 1 || chunk.tokens == nullptr) bad_argument(name + " has no tokens");
  const Held held = lengths(chunk.slot);
  if (chunk.position < 0 || chunk.position > held.length) {
    bad_argument(name + " begins at position " + std::to_string(chunk.position) + ", but the slot holds " +
                 std::to_string(held.length));
  }
  check_taken_back(name + " begins at", chunk.position, held);
  if (chunk.count > limits.context - chunk.position) {
    bad_argument(name + " ends at position " + std::to_string(int64_t{chunk.position} + chunk.count) +
                 ", past the context of " + std::to_string(limits.context));
  }
  for (int32_t token = 0; token < chunk.count; ++token) {
    if (chunk.tokens[token] < 0 || chunk.tokens[token] >= limits.vocabulary) {
      bad_argument(name + " has the token " + std::to_string(chunk.tokens[token]) + "; the vocabulary has " +
                   std::to_string(limits.vocabulary));
    }
  }
  if (chunk.logits < ASSAY_LOGITS_NONE || chunk.logits > ASSAY_LOGITS_ALL) {
    bad_argument(name + " asks for logits of kind " + std::to_string(chunk.logits));
  }
}

// Every rule of assay_step, before anything is written.
template <typename Lengths>
void check_step(const assay_chunk* chunks, size_t count, const float* logits, const int32_t* greedy, size_t rows,
                const Limits& limits, const Lengths& lengths) {
  if (count != 0 && chunks == nullptr) bad_argument("no chunks");
  size_t wanted = 0;
  std::vector<bool> seen(static_cast<size_t>(limits.slots), false);
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    const std::string name = "chunk " + std::to_string(index);
    check_slot(name, chunk.slot, limits);
    if (seen[static_cast<size_t>(chunk.slot)]) {
      bad_argument("slot " + std::to_string(chunk.slot) + " is twice in one step");
    }
    seen[static_cast<size_t>(chunk.slot)] = true;
    check_chunk(name, chunk, limits, lengths);
    if (chunk.logits == ASSAY_LOGITS_LAST) ++wanted;
    if (chunk.logits == ASSAY_LOGITS_ALL) wanted += static_cast<size_t>(chunk.count);
  }
  if (wanted != rows) {
    bad_argument("room for " + std::to_string(rows) + " rows of logits, " + std::to_string(wanted) + " asked for");
  }
  if (rows != 0 && (logits == nullptr || greedy == nullptr)) bad_argument("no buffer for the logits");
}

// Every rule of assay_fork.
template <typename Lengths>
void check_fork(int source, int slot, int positions, const Limits& limits, const Lengths& lengths) {
  check_slot("the source", source, limits);
  check_slot("the fork", slot, limits);
  const Held held = lengths(source);
  if (positions < 0 || positions > held.length) {
    bad_argument("a fork of " + std::to_string(positions) + " positions; the slot holds " +
                 std::to_string(held.length));
  }
  check_taken_back("a fork at", positions, held);
}

// Cuts a checked step into passes of at most `most_rows` rows and runs each.
template <typename Run>
void run_in_passes(const assay_chunk* chunks, size_t count, float* logits, int32_t* greedy, int most_rows,
                   int vocabulary, const Run& run) {
  Pass pass;
  const auto flush = [&] {
    pass.logits = logits;
    pass.greedy = greedy;
    run(pass);
    logits += pass.wanted.size() * static_cast<size_t>(vocabulary);
    greedy += pass.wanted.size();
    pass = Pass();
  };
  for (size_t index = 0; index < count; ++index) {
    const assay_chunk& chunk = chunks[index];
    for (int done = 0; done < chunk.count;) {
      const int first = static_cast<int>(pass.tokens.size());
      const int taken = std::min(chunk.count - done, most_rows - first);
      pass.tokens.insert(pass.tokens.end(), chunk.tokens + done, chunk.tokens + done + taken);
      pass.segments.push_back({chunk.slot, chunk.position + done, first, taken});
      for (int row = 0; row < taken; ++row) {
        const bool last = done + row + 1 == chunk.count;
        if (chunk.logits == ASSAY_LOGITS_ALL || (chunk.logits == ASSAY_LOGITS_LAST && last)) {
          pass.wanted.push_back(first + row);
        }
      }
      done += taken;
      if (first + taken == most_rows) flush();
    }
  }
  if (!pass.tokens.empty()) flush();
}

}  // namespace assay
