// Keys and values of every slot, in half precision.
//
// One slot is layers x kv_heads x (keys, values); keys lie as
// [position / 8][head_dim][8], values as [position][head_dim] (ops.h). The
// capacity of a slot is rounded up to whole position blocks. Pages become
// resident when first written.
#pragma once

#include <vector>

#include "config.h"
#include "mapping.h"
#include "ops.h"

namespace assay {

class Cache {
 public:
  Cache(const Config& config, int slots, int context);

  KvHead head(int slot, int layer, int kv_head) const;
  int length(int slot) const { return lengths_[static_cast<size_t>(slot)]; }
  void set_length(int slot, int length) { lengths_[static_cast<size_t>(slot)] = length; }

 private:
  size_t head_halves_;  // keys of one head; as many values follow
  size_t layer_heads_;
  size_t slot_heads_;
  std::vector<int> lengths_;
  Pages pages_;
};

}  // namespace assay
