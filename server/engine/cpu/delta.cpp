// delta, delta_fold: the gated delta rule within a chunk, and what a chunk leaves behind (ops.h).
//
// Eight lanes are eight positions of the chunk (dots of keys) or eight columns of a
// head's values (all else). The state is the memory that decoding reads, 32
// columns after the other in one stream; of several rows each load of it serves up
// to three. A row's chains are the same alone and among others.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

constexpr int kMostTile = 3;                     // rows that share loads: 12 sums fit into 16 registers
constexpr int kVectors = kDeltaColumns / 8;      // of a block of columns

// Rows that are computed together, and what is known of each of them.
struct Tile {
  const float* k[kMostTile];
  const float* q[kMostTile];
  alignas(32) float key_dots[kMostTile][kDeltaChunk];
  alignas(32) float query_dots[kMostTile][kDeltaChunk];
  alignas(32) float known[kMostTile][kMostDeltaDim];   // the state's product with the key
  alignas(32) float answer[kMostTile][kMostDeltaDim];  // with the query
};

// The dots of the chunk's keys with each row's key and query; those past a row's place mean nothing.
template <int kRows>
void find_dots(const DeltaState& chunk, int places, Tile& tile) {
  for (int j = 0; j < places; j += 8) {
    __m256 key[kRows], query[kRows];
    for (int row = 0; row < kRows; ++row) key[row] = query[row] = _mm256_setzero_ps();
    for (int d = 0; d < chunk.key_dim; ++d) {
      const __m256 keys = _mm256_loadu_ps(chunk.keys + d * kDeltaChunk + j);
      for (int row = 0; row < kRows; ++row) {
        key[row] = _mm256_fmadd_ps(keys, _mm256_broadcast_ss(tile.k[row] + d), key[row]);
        query[row] = _mm256_fmadd_ps(keys, _mm256_broadcast_ss(tile.q[row] + d), query[row]);
      }
    }
    for (int row = 0; row < kRows; ++row) {
      _mm256_store_ps(tile.key_dots[row] + j, key[row]);
      _mm256_store_ps(tile.query_dots[row] + j, query[row]);
    }
  }
}

// Products of each row's key and query with `kWide` vectors of columns, from column c of the block at `state` on.
template <int kRows, int kWide>
void read_columns(const float* state, int key_dim, int column, Tile& tile) {
  __m256 known[kRows][kWide], answer[kRows][kWide];
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kWide; ++v) known[row][v] = answer[row][v] = _mm256_setzero_ps();
  }
  for (int d = 0; d < key_dim; ++d) {
    __m256 s[kWide];
    for (int v = 0; v < kWide; ++v) s[v] = _mm256_loadu_ps(state + d * kDeltaColumns + 8 * v);
    for (int row = 0; row < kRows; ++row) {
      const __m256 k = _mm256_broadcast_ss(tile.k[row] + d);
      const __m256 q = _mm256_broadcast_ss(tile.q[row] + d);
      for (int v = 0; v < kWide; ++v) {
        known[row][v] = _mm256_fmadd_ps(s[v], k, known[row][v]);
        answer[row][v] = _mm256_fmadd_ps(s[v], q, answer[row][v]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kWide; ++v) {
      _mm256_store_ps(tile.known[row] + column + 8 * v, known[row][v]);
      _mm256_store_ps(tile.answer[row] + column + 8 * v, answer[row][v]);
    }
  }
}

template <int kRows>
void read_state(const DeltaState& chunk, int head, Tile& tile) {
  constexpr int kWide = kRows == 1 ? kVectors : 2;
  for (int block = 0; block < chunk.value_dim; block += kDeltaColumns) {
    const float* state = chunk.state_of(head) + static_cast<size_t>(block) * static_cast<size_t>(chunk.key_dim);
    for (int column = 0; column < kDeltaColumns; column += 8 * kWide) {
      read_columns<kRows, kWide>(state + column, chunk.key_dim, block + column, tile);
    }
  }
}

// e^(last - decays[j]) for every j below `count`, and what stands behind it to the next multiple of 8.
inline void decay_since(const float* decays, float last, int count, float* out) {
  for (int j = 0; j < count; j += 8) {
    _mm256_storeu_ps(out + j, exp8(_mm256_sub_ps(_mm256_set1_ps(last), _mm256_loadu_ps(decays + j))));
  }
}

// One row of one value head, whose products with the state stand in the tile.
inline void advance(const DeltaState& chunk, int head, int place, const Tile& tile, int row, const float* v, float g,
                    float beta, float* out) {
  float* updates = chunk.updates_of(head);
  float* decays = chunk.decays_of(head);
  decays[place] = place == 0 ? g : decays[place - 1] + g;
  const __m256 kept = _mm256_set1_ps(exp1(decays[place]));
  const __m256 strength = _mm256_set1_ps(beta);
  alignas(32) float key_weight[kDeltaChunk], query_weight[kDeltaChunk];
  decay_since(decays, decays[place], place + 1, key_weight);
  for (int j = 0; j <= place; j += 8) {
    const __m256 since = _mm256_load_ps(key_weight + j);
    _mm256_store_ps(key_weight + j, _mm256_mul_ps(since, _mm256_load_ps(tile.key_dots[row] + j)));
    _mm256_store_ps(query_weight + j, _mm256_mul_ps(since, _mm256_load_ps(tile.query_dots[row] + j)));
  }
  for (int block = 0; block < chunk.value_dim; block += kDeltaColumns) {
    float* at = updates + block * kDeltaChunk;
    __m256 known[kVectors], answer[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      known[i] = answer[i] = _mm256_setzero_ps();
      if (chunk.empty) continue;
      known[i] = _mm256_mul_ps(kept, _mm256_load_ps(tile.known[row] + block + 8 * i));
      answer[i] = _mm256_mul_ps(kept, _mm256_load_ps(tile.answer[row] + block + 8 * i));
    }
    for (int j = 0; j < place; ++j) {
      const __m256 key = _mm256_broadcast_ss(key_weight + j);
      const __m256 query = _mm256_broadcast_ss(query_weight + j);
      for (int i = 0; i < kVectors; ++i) {
        const __m256 update = _mm256_loadu_ps(at + j * kDeltaColumns + 8 * i);
        known[i] = _mm256_fmadd_ps(key, update, known[i]);
        answer[i] = _mm256_fmadd_ps(query, update, answer[i]);
      }
    }
    const __m256 own = _mm256_broadcast_ss(query_weight + place);
    for (int i = 0; i < kVectors; ++i) {
      const __m256 wrong = _mm256_sub_ps(_mm256_loadu_ps(v + block + 8 * i), known[i]);
      const __m256 update = _mm256_mul_ps(strength, wrong);
      _mm256_storeu_ps(at + place * kDeltaColumns + 8 * i, update);
      _mm256_storeu_ps(out + block + 8 * i, _mm256_fmadd_ps(own, update, answer[i]));
    }
  }
}

template <int kRows>
void advance_tile(const DeltaRows& rows, const DeltaState& chunk, int first) {
  Tile tile;
  for (int row = 0; row < kRows; ++row) {
    tile.k[row] = rows.k + static_cast<size_t>(first + row) * rows.stride;
    tile.q[row] = rows.q + static_cast<size_t>(first + row) * rows.stride;
  }
  find_dots<kRows>(chunk, rows.first + first + kRows, tile);
  for (int index = 0; index < chunk.heads; ++index) {
    const size_t head = static_cast<size_t>(rows.first_head + index * rows.head_step);
    const size_t column = head * static_cast<size_t>(chunk.value_dim);
    if (!chunk.empty) read_state<kRows>(chunk, index, tile);
    for (int row = 0; row < kRows; ++row) {
      const size_t at = static_cast<size_t>(first + row);
      const size_t gate = at * rows.gate_stride + head;
      advance(chunk, index, rows.first + first + row, tile, row, rows.v + at * rows.stride + column, rows.decay[gate],
              rows.learned[gate], rows.out + at * rows.out_stride + column);
    }
  }
}

// Two rows of a head's state in `kVectors` vectors each: what is left of it, and what the chunk's updates add.
inline void fold_pair(const DeltaState& chunk, const float* since, const float* updates, float kept, int d,
                      float* state) {
  __m256 total[2][kVectors];
  const __m256 factor = _mm256_set1_ps(kept);
  for (int i = 0; i < 2; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      total[i][v] = chunk.empty ? _mm256_setzero_ps()
                                : _mm256_mul_ps(factor, _mm256_loadu_ps(state + i * kDeltaColumns + 8 * v));
    }
  }
  const float* keys = chunk.keys + d * kDeltaChunk;
  for (int j = 0; j < kDeltaChunk; ++j) {
    const __m256 first = _mm256_set1_ps(since[j] * keys[j]);
    const __m256 second = _mm256_set1_ps(since[j] * keys[kDeltaChunk + j]);
    for (int v = 0; v < kVectors; ++v) {
      const __m256 update = _mm256_loadu_ps(updates + j * kDeltaColumns + 8 * v);
      total[0][v] = _mm256_fmadd_ps(first, update, total[0][v]);
      total[1][v] = _mm256_fmadd_ps(second, update, total[1][v]);
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(state + i * kDeltaColumns + 8 * v, total[i][v]);
  }
}

}  // namespace

void delta(const DeltaRows& rows, const DeltaState& chunk) {
  for (int row = 0; row < rows.count; ++row) {
    const float* k = rows.k + static_cast<size_t>(row) * rows.stride;
    for (int d = 0; d < chunk.key_dim; ++d) chunk.keys[d * kDeltaChunk + rows.first + row] = k[d];
  }
  int row = 0;
  for (; row + kMostTile <= rows.count; row += kMostTile) advance_tile<kMostTile>(rows, chunk, row);
  for (; row < rows.count; ++row) advance_tile<1>(rows, chunk, row);
}

void delta_fold(const DeltaState& chunk) {
  for (int head = 0; head < chunk.heads; ++head) {
    const float last = chunk.decays_of(head)[kDeltaChunk - 1];
    const float kept = exp1(last);
    alignas(32) float since[kDeltaChunk];
    decay_since(chunk.decays_of(head), last, kDeltaChunk, since);
    for (int block = 0; block < chunk.value_dim; block += kDeltaColumns) {
      float* state = chunk.state_of(head) + static_cast<size_t>(block) * static_cast<size_t>(chunk.key_dim);
      const float* updates = chunk.updates_of(head) + block * kDeltaChunk;
      for (int d = 0; d < chunk.key_dim; d += 2) {
        fold_pair(chunk, since, updates, kept, d, state + d * kDeltaColumns);
      }
    }
  }
}

}  // namespace assay::cpu
