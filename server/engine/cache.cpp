#include "cache.h"

#include <cstring>

namespace assay {
namespace {

size_t blocks_of(int positions) { return static_cast<size_t>((positions + kPositionBlock - 1) / kPositionBlock); }

}  // namespace

Cache::Cache(const Config& config, KvType type, int slots, int context)
    : type_(type),
      kv_heads_(static_cast<size_t>(config.kv_heads)),
      head_bytes_(kv_block_bytes(type, config.head_dim)),
      block_bytes_(head_bytes_ * kv_heads_ * static_cast<size_t>(config.count(LayerKind::attention))),
      slots_(static_cast<size_t>(slots)),
      holders_(static_cast<size_t>(slots) * blocks_of(context), 0),
      pages_(holders_.size() * block_bytes_) {
  for (size_t index = holders_.size(); index > 0; --index) free_.push_back(pages_.data() + (index - 1) * block_bytes_);
  for (Slot& slot : slots_) slot.blocks.reserve(blocks_of(context));
}

uint64_t Cache::bytes_per_position() const { return block_bytes_ / kPositionBlock; }

uint8_t* Cache::take() {
  uint8_t* block = free_.back();
  free_.pop_back();
  holders(block) = 1;
  return block;
}

void Cache::shrink(Slot& slot, size_t blocks) {
  while (slot.blocks.size() > blocks) {
    uint8_t* block = slot.blocks.back();
    slot.blocks.pop_back();
    if (--holders(block) == 0) free_.push_back(block);
  }
}

void Cache::extend(int slot, int position, int length) {
  Slot& own = slots_[static_cast<size_t>(slot)];
  const size_t needed = blocks_of(length);
  shrink(own, needed);
  for (size_t index = static_cast<size_t>(position / kPositionBlock); index < own.blocks.size(); ++index) {
    uint8_t*& block = own.blocks[index];
    if (holders(block) == 1) continue;
    uint8_t* copy = take();
    std::memcpy(copy, block, block_bytes_);
    --holders(block);
    block = copy;
  }
  while (own.blocks.size() < needed) own.blocks.push_back(take());
  own.length = length;
}

void Cache::fork(int source, int slot, int positions) {
  const Slot& from = at(source);
  Slot& own = slots_[static_cast<size_t>(slot)];
  if (source == slot) {
    shrink(own, blocks_of(positions));
    own.length = positions;
    return;
  }
  shrink(own, 0);
  const size_t whole = static_cast<size_t>(positions / kPositionBlock);
  for (size_t index = 0; index < whole; ++index) {
    own.blocks.push_back(from.blocks[index]);
    ++holders(from.blocks[index]);
  }
  if (blocks_of(positions) > whole) {
    own.blocks.push_back(take());
    std::memcpy(own.blocks.back(), from.blocks[whole], block_bytes_);
  }
  own.length = positions;
}

}  // namespace assay
