// What slots keep for the layers of the gated delta rule: states, their running chunks, the convolution's rows.
//
// All of it has one size however long the sequence is. Of each slot and layer:
//   keys     [key_heads][key_dim][kDeltaChunk]
//   states   [value heads][key_dim x value_dim]     value heads in the order of their key heads (ops.h, DeltaState)
//   updates  [value heads][kDeltaChunk x value_dim]
//   decays   [value heads][kDeltaChunk]
//   ring     [kept_rows][width]                     rows before the convolution, position p at p % kept_rows
// Pages become resident when first written.
#pragma once

#include <vector>

#include "config.h"
#include "mapping.h"
#include "ops.h"
#include "rewind.h"

namespace assay {

// Consecutive rows from `position` on, chunk after chunk (DeltaRows::first is found here): where a row begins a chunk
// that the slot, whose running chunk begins at `base`, has not begun, the last one is folded.
void advance_delta(const Ops& ops, DeltaRows rows, int position, int base, DeltaState chunk);

class DeltaCache {
 public:
  DeltaCache(const Config& config, int slots);

  uint64_t bytes_per_slot() const { return layer_floats_ * layers_ * sizeof(float); }
  const Span& span(int slot) const { return spans_[static_cast<size_t>(slot)]; }

  // The fewest positions above 0 that a slot can be taken back to (rewind.h); 0 where there is no layer of the kind.
  int least(int slot) const { return layers_ == 0 ? 0 : span(slot).least(conv_); }

  // Positions from `positions` on are forgotten.
  void keep(int slot, int positions) { spans_[static_cast<size_t>(slot)].keep(positions); }

  // The next `count` positions have been written.
  void write(int slot, int count) { spans_[static_cast<size_t>(slot)].write(count, conv_); }

  // The slot now holds the first `positions` positions of another one.
  void fork(int source, int slot, int positions);

  // A key head's part of a layer; `empty` as the span says before a pass is written.
  DeltaState chunk(int slot, int layer, int key_head) const;
  float* row(int slot, int layer, int position) const;  // of the ring

 private:
  float* at(int slot, int layer) const {
    const size_t index = static_cast<size_t>(slot) * layers_ + static_cast<size_t>(layer);
    return pages_.as<float>() + index * layer_floats_;
  }

  DeltaShape shape_;
  int conv_;
  size_t layers_;
  size_t keys_, states_, updates_, decays_, ring_;  // floats of each part of a layer
  size_t layer_floats_;
  std::vector<Span> spans_;
  Pages pages_;
};

}  // namespace assay
