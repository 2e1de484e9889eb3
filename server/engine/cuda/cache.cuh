// Keys and values of every slot, in position blocks that slots may share (the CPU's cache.h, on the device).
//
// One allocation holds as many blocks as all slots may fill (CacheSizes); a block is kPositionBlock
// positions of every layer and key/value head (KvLayout). A slot is a table of
// blocks and a length; blocks are counted, a fork shares whole ones and copies the
// begun one, and whoever writes to a shared block gets a copy of his own first. The
// tables also lie on the device, where kernels look blocks up.
#pragma once

#include <vector>

#include "kernels.cuh"

namespace assay::cuda {

class Cache {
 public:
  Cache(const CacheSizes& sizes, int slots, const Stream& stream);

  KvType type() const { return layout_.type; }
  uint64_t bytes_per_position() const { return static_cast<uint64_t>(block_bytes_) / kPositionBlock; }
  int length(int slot) const { return slots_[static_cast<size_t>(slot)].length; }
  int most_blocks() const { return table_stride_; }  // of a slot

  // Blocks that extend() would take.
  size_t wanted(int slot, int position, int length) const;
  // Error (no memory) unless so many are free.
  void require(size_t blocks) const;

  // The slot now holds `length` positions, of which those from `position` on are about to be
  // written: their blocks are its own.
  void extend(int slot, int position, int length);

  // The slot now holds the first `positions` positions of another one.
  void fork(int source, int slot, int positions);

  // A layer, with rows at `slots` and `visible` (device memory).
  KvView view(int layer, const int32_t* slots, const int32_t* visible) const;

 private:
  struct Slot {
    std::vector<int32_t> blocks;
    int length = 0;
  };

  int32_t take();
  void shrink(Slot& slot, size_t blocks);
  void copy(int32_t to, int32_t from);
  void publish(int slot);  // its table, to the device

  KvLayout layout_;
  int64_t layer_bytes_;
  int64_t block_bytes_;
  int table_stride_;
  std::vector<Slot> slots_;
  std::vector<int> holders_;   // of each block
  std::vector<int32_t> free_;  // the next one last
  std::vector<int32_t> mirror_;  // of the tables
  const Stream& stream_;
  DeviceArray<uint8_t> pool_;
  DeviceArray<int32_t> tables_;
};

}  // namespace assay::cuda
