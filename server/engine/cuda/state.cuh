// What the gated delta layers of a model remember of every slot (../delta_slot.h), and how far each can be taken back.
//
// One allocation holds it for all slots, a slot's layers one after the other, so that a
// fork is one copy. Models without such layers have none of it.
#pragma once

#include <vector>

#include "delta.cuh"

namespace assay::cuda {

class State {
 public:
  State(const StateSizes& sizes, const Config& config, int slots, const Stream& stream);

  bool any() const { return sizes_.slot_floats != 0; }
  uint64_t bytes_per_slot() const { return sizes_.slot_bytes(); }

  // The fewest positions above 0 that a slot can be taken back to; 0: any number.
  int least(int slot) const { return any() ? spans_[static_cast<size_t>(slot)].least(shape_.conv) : 0; }

  // Rows are about to be written from `position` on. Returns the chunk's start that S is of.
  int write(int slot, int position, int count);

  // The slot now remembers the first `positions` positions of another one, or of itself.
  void fork(int source, int slot, int positions);

  // The `index`-th gated delta layer.
  DeltaView view(int index) const;

 private:
  StateSizes sizes_;
  DeltaShape shape_;
  bool grouped_;
  std::vector<Span> spans_;
  const Stream& stream_;
  DeviceArray<float> memory_;
};

}  // namespace assay::cuda
