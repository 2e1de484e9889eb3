// delta, delta_fold: the gated delta rule within a chunk, and what a chunk leaves behind (ops.h).
#include "ref.h"

namespace assay::ref {
namespace {

struct Products {
  float key[kDeltaChunk];    // of earlier keys of the chunk with this one
  float query[kDeltaChunk];  // with this query, the row's own key among them
};

// The chain over key_dim of column c of a head's state with x.
float state_product(const DeltaState& chunk, const float* state, const float* x, int c) {
  float total = 0.0f;
  for (int d = 0; d < chunk.key_dim; ++d) total += state[delta_state_at(chunk.key_dim, d, c)] * x[d];
  return total;
}

// One row of one value head.
void advance(const DeltaState& chunk, int head, int place, const Products& dots, const float* k, const float* q,
             const float* v, float g, float beta, float* out) {
  const float* state = chunk.state_of(head);
  float* updates = chunk.updates_of(head);
  float* decays = chunk.decays_of(head);
  decays[place] = place == 0 ? g : decays[place - 1] + g;
  const float kept = exp(decays[place]);
  float key_weight[kDeltaChunk], query_weight[kDeltaChunk];
  for (int j = 0; j <= place; ++j) {
    const float since = exp(decays[place] - decays[j]);
    key_weight[j] = since * dots.key[j];
    query_weight[j] = since * dots.query[j];
  }
  for (int c = 0; c < chunk.value_dim; ++c) {
    float known = chunk.empty ? 0.0f : kept * state_product(chunk, state, k, c);
    float answer = chunk.empty ? 0.0f : kept * state_product(chunk, state, q, c);
    for (int j = 0; j < place; ++j) {
      const float update = updates[delta_update_at(j, c)];
      known += key_weight[j] * update;
      answer += query_weight[j] * update;
    }
    const float update = beta * (v[c] - known);
    updates[delta_update_at(place, c)] = update;
    out[c] = answer + query_weight[place] * update;
  }
}

}  // namespace

void delta(const DeltaRows& rows, const DeltaState& chunk) {
  for (int row = 0; row < rows.count; ++row) {
    const int place = rows.first + row;
    const float* k = rows.k + static_cast<size_t>(row) * rows.stride;
    const float* q = rows.q + static_cast<size_t>(row) * rows.stride;
    for (int d = 0; d < chunk.key_dim; ++d) chunk.keys[d * kDeltaChunk + place] = k[d];
    Products dots;
    for (int j = 0; j <= place; ++j) {
      dots.key[j] = dots.query[j] = 0.0f;
      for (int d = 0; d < chunk.key_dim; ++d) {
        dots.key[j] += chunk.keys[d * kDeltaChunk + j] * k[d];
        dots.query[j] += chunk.keys[d * kDeltaChunk + j] * q[d];
      }
    }
    for (int index = 0; index < chunk.heads; ++index) {
      const int head = rows.first_head + index * rows.head_step;
      const size_t gate = static_cast<size_t>(row) * rows.gate_stride + static_cast<size_t>(head);
      const size_t at = static_cast<size_t>(head * chunk.value_dim);
      advance(chunk, index, place, dots, k, q, rows.v + static_cast<size_t>(row) * rows.stride + at, rows.decay[gate],
              rows.learned[gate], rows.out + static_cast<size_t>(row) * rows.out_stride + at);
    }
  }
}

void delta_fold(const DeltaState& chunk) {
  for (int head = 0; head < chunk.heads; ++head) {
    const float* updates = chunk.updates_of(head);
    const float* decays = chunk.decays_of(head);
    const float last = decays[kDeltaChunk - 1];
    const float kept = exp(last);
    float since[kDeltaChunk];
    for (int j = 0; j < kDeltaChunk; ++j) since[j] = exp(last - decays[j]);
    for (int c = 0; c < chunk.value_dim; ++c) {
      for (int d = 0; d < chunk.key_dim; ++d) {
        float& state = chunk.state_of(head)[delta_state_at(chunk.key_dim, d, c)];
        float total = chunk.empty ? 0.0f : kept * state;
        for (int j = 0; j < kDeltaChunk; ++j) {
          total += since[j] * chunk.keys[d * kDeltaChunk + j] * updates[delta_update_at(j, c)];
        }
        state = total;
      }
    }
  }
}

}  // namespace assay::ref
