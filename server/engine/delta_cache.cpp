#include "delta_cache.h"

#include <algorithm>

namespace assay {
namespace {

size_t floats(int a, int b, int c = 1) {
  return static_cast<size_t>(a) * static_cast<size_t>(b) * static_cast<size_t>(c);
}

}  // namespace

void advance_delta(const Ops& ops, DeltaRows rows, int position, int base, DeltaState chunk) {
  for (int left = rows.count; left > 0;) {
    rows.first = position % kDeltaChunk;
    rows.count = std::min(left, kDeltaChunk - rows.first);
    if (position - rows.first > base) {
      ops.delta_fold(chunk);
      chunk.empty = false;
      base = position - rows.first;
    }
    ops.delta(rows, chunk);
    const size_t done = static_cast<size_t>(rows.count);
    rows.q += done * rows.stride;
    rows.k += done * rows.stride;
    rows.v += done * rows.stride;
    rows.decay += done * rows.gate_stride;
    rows.learned += done * rows.gate_stride;
    rows.out += done * rows.out_stride;
    position += rows.count;
    left -= rows.count;
  }
}

DeltaCache::DeltaCache(const Config& config, int slots)
    : shape_(config.delta),
      conv_(shape_.conv),
      layers_(static_cast<size_t>(config.count(LayerKind::delta))),
      keys_(floats(shape_.key_heads, shape_.key_dim, kDeltaChunk)),
      states_(floats(shape_.value_heads, shape_.key_dim, shape_.value_dim)),
      updates_(floats(shape_.value_heads, kDeltaChunk, shape_.value_dim)),
      decays_(floats(shape_.value_heads, kDeltaChunk)),
      ring_(layers_ == 0 ? 0 : floats(kept_rows(conv_), shape_.width())),
      layer_floats_(keys_ + states_ + updates_ + decays_ + ring_),
      spans_(static_cast<size_t>(slots)),
      pages_(static_cast<size_t>(slots) * layers_ * layer_floats_ * sizeof(float)) {}

DeltaState DeltaCache::chunk(int slot, int layer, int key_head) const {
  float* keys = at(slot, layer);
  float* states = keys + keys_;
  float* updates = states + states_;
  float* decays = updates + updates_;
  const size_t head = static_cast<size_t>(key_head);
  const size_t parts = static_cast<size_t>(shape_.key_heads);
  return {keys + head * (keys_ / parts),
          states + head * (states_ / parts),
          updates + head * (updates_ / parts),
          decays + head * (decays_ / parts),
          shape_.group(),
          shape_.key_dim,
          shape_.value_dim,
          span(slot).base == 0};
}

float* DeltaCache::row(int slot, int layer, int position) const {
  const size_t index = static_cast<size_t>(position % kept_rows(conv_));
  return at(slot, layer) + keys_ + states_ + updates_ + decays_ + index * static_cast<size_t>(shape_.width());
}

void DeltaCache::fork(int source, int slot, int positions) {
  if (source != slot) {
    spans_[static_cast<size_t>(slot)] = span(source);
    if (positions > 0 && layers_ > 0) {
      std::copy_n(at(source, 0), layers_ * layer_floats_, at(slot, 0));
    }
  }
  keep(slot, positions);
}

}  // namespace assay
