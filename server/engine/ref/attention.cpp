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

// Positions [block * kPositionBlock, visible) of one query; visible is past the block's begin.
State block_state(const float* q, int head_dim, const KvHead& head, int block, int visible) {
  const size_t width = static_cast<size_t>(head_dim);
  const size_t begin = static_cast<size_t>(block) * kPositionBlock;
  const size_t count = std::min<size_t>(static_cast<size_t>(visible) - begin, kPositionBlock);
  float scores[kPositionBlock];
  State state;
  state.largest = -std::numeric_limits<float>::infinity();
  state.sum = 0.0f;
  for (size_t i = 0; i < count; ++i) {
    const uint16_t* key = head.keys + (begin + i) / kKeyLane * width * kKeyLane + i % kKeyLane;
    float score = 0.0f;
    for (size_t d = 0; d < width; ++d) score += q[d] * half_to_float(key[d * kKeyLane]);
    scores[i] = score;
    state.largest = std::max(state.largest, score);
  }
  std::fill_n(state.weighted, width, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    const float weight = exp(scores[i] - state.largest);
    const uint16_t* value = head.values + (begin + i) * width;
    for (size_t d = 0; d < width; ++d) state.weighted[d] += weight * half_to_float(value[d]);
    state.sum += weight;
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

void attention_decode(const Queries& queries, const KvHead& head, int block, float* partials, size_t stride) {
  for (int i = 0; i < queries.count; ++i) {
    const State state =
        block_state(queries.q + i * queries.head_dim, queries.head_dim, head, block, queries.visible[i]);
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

void attention_prefill(const Queries& queries, const KvHead& head, float* const* outputs) {
  for (int i = 0; i < queries.count; ++i) {
    const float* q = queries.q + i * queries.head_dim;
    State state = block_state(q, queries.head_dim, head, 0, queries.visible[i]);
    for (int block = 1; block * kPositionBlock < queries.visible[i]; ++block) {
      const State next = block_state(q, queries.head_dim, head, block, queries.visible[i]);
      fold(state, next.weighted, next.largest, next.sum, queries.head_dim);
    }
    normalise(state, queries.head_dim, outputs[i]);
  }
}

}  // namespace assay::ref
