// attention: softmax(q k) v over the visible positions, in blocks of kPositionBlock.
//
// A block gives a partial result (exp-weighted values, largest score, sum of
// exp); partials fold in the order of the blocks. Decode computes partials
// apart and folds them later, prefill folds as it goes: the same operations.
#include <algorithm>
#include <limits>

#include "../half.h"
#include "ref.h"

namespace assay::ref {
namespace {

struct State {
  float weighted[kMostHeadDim];
  float largest;
  float sum;
};

// One position block of one head (ops.h), read item by item.
class Block {
 public:
  Block(const uint8_t* data, KvType type, int head_dim)
      : data_(data), type_(type), width_(static_cast<size_t>(head_dim)) {}

  float key(size_t position, size_t d) const {
    if (type_ == KvType::q4) {
      const uint8_t pair = data_[(position / kKeyLane * width_ / 2 + d / 2) * kKeyLane + position % kKeyLane];
      const uint16_t* scale = halves() + d / kKvGroup * 2 * kPositionBlock + position;
      return widen(scale[0], scale[kPositionBlock], d % 2 == 0 ? pair & 15 : pair >> 4);
    }
    return item(position / kKeyLane * width_ * kKeyLane + d * kKeyLane + position % kKeyLane);
  }
  float value(size_t position, size_t d) const {
    if (type_ == KvType::q4) {
      const size_t group = d / kKvGroup, i = d % kKvGroup, groups = width_ / kKvGroup;
      const uint8_t pair = data_[((kPositionBlock + position) * groups + group) * kKvGroup / 2 + i % (kKvGroup / 2)];
      const uint16_t* scale = halves() + (groups * kPositionBlock + position * groups + group) * 2;
      return widen(scale[0], scale[1], i < kKvGroup / 2 ? pair & 15 : pair >> 4);
    }
    return item((kPositionBlock + position) * width_ + d);
  }
  float key_scale(size_t position) const { return scale(position); }
  float value_scale(size_t position) const { return scale(kPositionBlock + position); }

 private:
  float item(size_t index) const {
    if (type_ == KvType::f16) return half_to_float(reinterpret_cast<const uint16_t*>(data_)[index]);
    return static_cast<float>(reinterpret_cast<const int8_t*>(data_)[index]);
  }
  static float widen(uint16_t scale, uint16_t minimum, int n) { return half_to_float(widened(scale, minimum, n)); }
  const uint16_t* halves() const { return reinterpret_cast<const uint16_t*>(data_ + kPositionBlock * width_); }
  float scale(size_t index) const {
    if (type_ != KvType::int8) return 1.0f;
    return reinterpret_cast<const float*>(data_ + 2 * kPositionBlock * width_)[index];
  }

  const uint8_t* data_;
  KvType type_;
  size_t width_;
};

// Positions [first, visible) of one query in the block that begins at `first`; visible is past it.
State block_state(const float* q, const Queries& queries, const uint8_t* data, int first, int visible) {
  const Block block(data, queries.type, queries.head_dim);
  const size_t width = static_cast<size_t>(queries.head_dim);
  const size_t count = std::min<size_t>(static_cast<size_t>(visible - first), kPositionBlock);
  float scores[kPositionBlock];
  State state;
  state.largest = -std::numeric_limits<float>::infinity();
  state.sum = 0.0f;
  for (size_t i = 0; i < count; ++i) {
    float score = 0.0f;
    for (size_t d = 0; d < width; ++d) score += q[d] * block.key(i, d);
    scores[i] = score * block.key_scale(i);
    state.largest = std::max(state.largest, scores[i]);
  }
  std::fill_n(state.weighted, width, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    const float weight = exp(scores[i] - state.largest);
    state.sum += weight;
    const float scaled = weight * block.value_scale(i);
    for (size_t d = 0; d < width; ++d) state.weighted[d] += scaled * block.value(i, d);
  }
  return state;
}

void fold(State& state, const float* weighted, float largest, float sum, int head_dim) {
  const float joint = std::max(state.largest, largest);
  const float keep = exp(state.largest - joint);
  const float gain = exp(largest - joint);
  for (int d = 0; d < head_dim; ++d) state.weighted[d] = state.weighted[d] * keep + weighted[d] * gain;
  state.sum = state.sum * keep + sum * gain;
  state.largest = joint;
}

void normalise(const State& state, int head_dim, float* out) {
  const float inverse = 1.0f / state.sum;
  for (int d = 0; d < head_dim; ++d) out[d] = state.weighted[d] * inverse;
}

}  // namespace

void attention_decode(const Queries& queries, const uint8_t* block, const uint8_t*, int first, float* partials,
                      size_t stride) {
  for (int i = 0; i < queries.count; ++i) {
    const State state = block_state(queries.q + i * queries.head_dim, queries, block, first, queries.visible[i]);
    float* out = partials + static_cast<size_t>(i) * stride;
    std::copy_n(state.weighted, queries.head_dim, out);
    out[queries.head_dim] = state.largest;
    out[queries.head_dim + 1] = state.sum;
  }
}

void attention_fold(const float* partials, int count, int head_dim, float* out) {
  State state;
  std::copy_n(partials, head_dim, state.weighted);
  state.largest = partials[head_dim];
  state.sum = partials[head_dim + 1];
  for (int block = 1; block < count; ++block) {
    const float* next = partials + static_cast<size_t>(block) * partial_floats(head_dim);
    fold(state, next, next[head_dim], next[head_dim + 1], head_dim);
  }
  normalise(state, head_dim, out);
}

void attention_prefill(const Queries& queries, const uint8_t* const* blocks, float* const* outputs) {
  for (int i = 0; i < queries.count; ++i) {
    const float* q = queries.q + i * queries.head_dim;
    State state = block_state(q, queries, blocks[0], 0, queries.visible[i]);
    for (int first = kPositionBlock; first < queries.visible[i]; first += kPositionBlock) {
      const State next = block_state(q, queries, blocks[first / kPositionBlock], first, queries.visible[i]);
      fold(state, next.weighted, next.largest, next.sum, queries.head_dim);
    }
    normalise(state, queries.head_dim, outputs[i]);
  }
}

}  // namespace assay::ref
