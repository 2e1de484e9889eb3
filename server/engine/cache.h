// Keys and values of every slot, in position blocks that slots may share.
//
// A block holds kPositionBlock positions of every layer and key/value head
// ([layer][kv_head][kv_block_bytes], ops.h). A slot is a table of blocks and a
// length. Blocks are counted: a fork shares whole ones and copies the last,
// begun one; whoever writes to a shared block gets a copy of his own first. The
// pool holds as many blocks as all slots could fill, and its pages become
// resident when first written; freed blocks are used again, the last freed
// first, so that memory grows no further than the most that was held at once.
#pragma once

#include <vector>

#include "config.h"
#include "mapping.h"
#include "ops.h"

namespace assay {

class Cache {
 public:
  Cache(const Config& config, KvType type, int slots, int context);

  KvType type() const { return type_; }
  uint64_t bytes_per_position() const;
  int length(int slot) const { return at(slot).length; }

  // The slot now holds `length` positions, of which those from `position` on are about to be
  // written: their blocks are its own.
  void extend(int slot, int position, int length);

  // The slot now holds the first `positions` positions of another one.
  void fork(int source, int slot, int positions);

  // Block tables of a slot: table[block] is the block's data, valid until the next change.
  uint8_t* const* table(int slot) const { return at(slot).blocks.data(); }

  // Where a head's part lies in a block.
  size_t offset(int layer, int kv_head) const {
    return (static_cast<size_t>(layer) * kv_heads_ + static_cast<size_t>(kv_head)) * head_bytes_;
  }

 private:
  struct Slot {
    std::vector<uint8_t*> blocks;
    int length = 0;
  };

  const Slot& at(int slot) const { return slots_[static_cast<size_t>(slot)]; }
  int& holders(const uint8_t* block) { return holders_[static_cast<size_t>(block - pages_.data()) / block_bytes_]; }
  uint8_t* take();
  void shrink(Slot& slot, size_t blocks);

  KvType type_;
  size_t kv_heads_;
  size_t head_bytes_;
  size_t block_bytes_;
  std::vector<Slot> slots_;
  std::vector<int> holders_;    // of each block of the pool
  std::vector<uint8_t*> free_;  // the next one last
  Pages pages_;
};

}  // namespace assay
