#include "cache.cuh"

#include <algorithm>

namespace assay::cuda {
namespace {

size_t blocks_of(int positions) { return static_cast<size_t>((positions + kPositionBlock - 1) / kPositionBlock); }

}  // namespace

Cache::Cache(const CacheSizes& sizes, int slots, const Stream& stream)
    : layout_(sizes.layout),
      layer_bytes_(sizes.layer_bytes),
      block_bytes_(sizes.block_bytes),
      table_stride_(sizes.slot_blocks),
      slots_(static_cast<size_t>(slots)),
      holders_(sizes.blocks, 0),
      mirror_(sizes.table_entries, 0),
      stream_(stream),
      pool_(sizes.pool_bytes()),
      tables_(sizes.table_entries) {
  for (size_t index = holders_.size(); index > 0; --index) free_.push_back(static_cast<int32_t>(index) - 1);
  // What a position never held is multiplied by a weight of zero: it must be a number.
  stream_.zero(pool_.data(), pool_.bytes());
  stream_.zero(tables_.data(), tables_.bytes());
}

size_t Cache::wanted(int slot, int position, int length) const {
  const Slot& own = slots_[static_cast<size_t>(slot)];
  const size_t needed = blocks_of(length), there = std::min(needed, own.blocks.size());
  size_t count = needed - there;
  for (size_t index = static_cast<size_t>(position / kPositionBlock); index < there; ++index) {
    if (holders_[static_cast<size_t>(own.blocks[index])] != 1) ++count;
  }
  return count;
}

void Cache::require(size_t blocks) const {
  if (blocks <= free_.size()) return;
  throw Error(ASSAY_NO_MEMORY, "the slots hold as many positions as there is memory for: of " +
                                   std::to_string(holders_.size()) + " blocks of " + std::to_string(kPositionBlock) +
                                   " positions " + std::to_string(free_.size()) + " are free, " +
                                   std::to_string(blocks) + " are wanted");
}

int32_t Cache::take() {
  const int32_t block = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(block)] = 1;
  return block;
}

void Cache::shrink(Slot& slot, size_t blocks) {
  while (slot.blocks.size() > blocks) {
    const int32_t block = slot.blocks.back();
    slot.blocks.pop_back();
    if (--holders_[static_cast<size_t>(block)] == 0) free_.push_back(block);
  }
}

void Cache::copy(int32_t to, int32_t from) {
  ASSAY_CUDA(cudaMemcpyAsync(pool_.data() + to * block_bytes_, pool_.data() + from * block_bytes_,
                             static_cast<size_t>(block_bytes_), cudaMemcpyDeviceToDevice, stream_.get()));
}

void Cache::publish(int slot) {
  const std::vector<int32_t>& blocks = slots_[static_cast<size_t>(slot)].blocks;
  const size_t first = static_cast<size_t>(slot) * static_cast<size_t>(table_stride_);
  int32_t* kept = mirror_.data() + first;
  if (std::equal(blocks.begin(), blocks.end(), kept)) return;
  stream_.wait();  // the mirror may still be read for an earlier step
  std::copy(blocks.begin(), blocks.end(), kept);
  stream_.upload(tables_.data() + first, kept, blocks.size());
}

void Cache::extend(int slot, int position, int length) {
  Slot& own = slots_[static_cast<size_t>(slot)];
  const size_t needed = blocks_of(length);
  shrink(own, needed);
  for (size_t index = static_cast<size_t>(position / kPositionBlock); index < own.blocks.size(); ++index) {
    int32_t& block = own.blocks[index];
    if (holders_[static_cast<size_t>(block)] == 1) continue;
    const int32_t mine = take();
    copy(mine, block);
    --holders_[static_cast<size_t>(block)];
    block = mine;
  }
  while (own.blocks.size() < needed) own.blocks.push_back(take());
  own.length = length;
  publish(slot);
}

void Cache::fork(int source, int slot, int positions) {
  const Slot& from = slots_[static_cast<size_t>(source)];
  Slot& own = slots_[static_cast<size_t>(slot)];
  if (source == slot) {
    shrink(own, blocks_of(positions));
    own.length = positions;
    return;
  }
  shrink(own, 0);
  own.length = 0;
  if (positions % kPositionBlock != 0) require(1);
  const size_t whole = static_cast<size_t>(positions / kPositionBlock);
  for (size_t index = 0; index < whole; ++index) {
    own.blocks.push_back(from.blocks[index]);
    ++holders_[static_cast<size_t>(from.blocks[index])];
  }
  if (blocks_of(positions) > whole) {
    own.blocks.push_back(take());
    copy(own.blocks.back(), from.blocks[whole]);
  }
  own.length = positions;
  publish(slot);
}

KvView Cache::view(int layer, const int32_t* slots, const int32_t* visible) const {
  return {layout_,      pool_.data(), block_bytes_, layer * layer_bytes_, tables_.data(),
          table_stride_, slots,        visible};
}

}  // namespace assay::cuda
