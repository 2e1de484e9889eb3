#include "cache.h"

namespace assay {

Cache::Cache(const Config& config, int slots, int context) : lengths_(static_cast<size_t>(slots), 0) {
  const size_t capacity = static_cast<size_t>((context + kPositionBlock - 1) / kPositionBlock * kPositionBlock);
  head_halves_ = capacity * static_cast<size_t>(config.head_dim);
  layer_heads_ = static_cast<size_t>(config.kv_heads);
  slot_heads_ = layer_heads_ * static_cast<size_t>(config.layers);
  pages_ = Pages(static_cast<size_t>(slots) * slot_heads_ * head_halves_ * 2 * sizeof(uint16_t));
}

KvHead Cache::head(int slot, int layer, int kv_head) const {
  const size_t index = static_cast<size_t>(slot) * slot_heads_ + static_cast<size_t>(layer) * layer_heads_ +
                       static_cast<size_t>(kv_head);
  uint16_t* keys = pages_.as<uint16_t>() + index * head_halves_ * 2;
  return {keys, keys + head_halves_};
}

}  // namespace assay
