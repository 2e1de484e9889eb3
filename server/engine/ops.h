// The operations a backend must provide, one file each in its room.
//
// A backend is a table of functions; ref/ is portable C++, cpu/ is AVX2 and AVX-512. The
// arithmetic of an output is fixed by the shape alone: which function computes
// it (decode or prefill), beside how many others, in which order or on which
// thread never changes a bit. Where both a decode and a prefill form exist they
// perform the same operations in the same order on each output.
//
// All arrays are dense and row-major; no pointers alias but where said.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_q4.h"
#include "packed.h"
#include "rewind.h"

namespace assay {

constexpr int kPositionBlock = 128;  // attention's unit: partial results cover it, and fold in order
constexpr int kMostQueries = 12;     // of a tile, in any backend

// Activations of `count` rows, as float and as int8 blocks of 32: first every
// block in order, then a second block of int8 for the residual of each refined
// one, at 1 / 256 of its scale. A block is about scale * (q + residual / 256);
// sum is that of q + residual / 256 over the block, which is exact in a float.
//
// A linear operation on quantised weights (scale w, minimum m, integers) is, for
// each output, two chains of fused steps that are added at the end:
//   main:     over the blocks in order    total = fma(scale, w * dot(q) + m * sum, total)
//   residual: over the refined, in order  total = fma(scale / 256, w * dot(residual), total)
// and where every block is refined, one chain alone:
//   total = fma(scale, w * (dot(q) + dot(residual) / 256) + m * sum, total)
// so that a block's weights are read once for both. Dots are exact integers. Where the halves of a block
// have scales of their own, w * dot is  fma(w_low, dot_low, w_high * dot_high)  in either chain.
//
// A row's rounding error is mostly that of its few widest blocks. On SmolLM2 (2,040
// positions of prose and code) the mean KL to exact arithmetic is 0.0028 nats with
// no block refined, 0.0020 with every block before the output head, where it costs
// nothing (memory is the limit), 0.0008 with the widest sixteenth before every other
// matrix too, and 0.0004 with the widest eighth, for 6 % of a prompt's time.
struct Rows {
  const float* x;          // [count][columns]
  const int8_t* q;         // [count][blocks + refinements][32]
  const float* scale;      // [count][blocks + refinements]
  const float* sum;        // [count][blocks + refinements]; 0 past the blocks
  const int32_t* refined;  // [count][refinements]: the block each residual belongs to, ascending
  int refinements;
  int count;
};

constexpr int few_refinements(int blocks) { return (blocks + 8) / 16; }

// Where a row's quantised form goes; the shapes of Rows with a count of 1.
struct QuantisedRow {
  int8_t* q;
  float* scale;
  float* sum;
  int32_t* refined;
  int refinements;
};

// Where a linear operation puts row t, output i: out[t * stride + i].
struct Output {
  float* out;
  size_t stride;
  bool add;  // add to what is there
};

// How keys and values are kept: as halves, as int8 with one scale for each
// position of a key/value head (scale = max|x| / 127, q rounded to nearest), or
// at 4 bits in groups of 32 values, the keys mixed (kv_q4.h: so must queries be that attention is given).
enum class KvType { f16, int8, q4 };

// One position block of one key/value head, in kv_block_bytes bytes:
//   keys    [kPositionBlock / lane][head_dim][lane], lane = Ops::key_lane
//   values  [kPositionBlock][head_dim]
//   int8 only: float key scale[kPositionBlock], float value scale[kPositionBlock]
// and of q4 (head_dim a multiple of kKvGroup)
//   keys    [kPositionBlock / lane][head_dim / 2][lane] bytes: dimension 2 i low, 2 i + 1 high
//   values  [kPositionBlock][head_dim / 32][16] bytes: value i of a group low, 16 + i high
//   half    key scales [head_dim / 32][2][kPositionBlock], value scales [kPositionBlock][head_dim / 32][2]:
//           scale, then minimum
constexpr size_t kv_block_bytes(KvType type, int head_dim) {
  const size_t items = size_t{2} * kPositionBlock * static_cast<size_t>(head_dim);
  if (type == KvType::q4) return items / 2 + items / kKvGroup * 2 * sizeof(uint16_t);
  return type == KvType::f16 ? items * sizeof(uint16_t) : items + 2 * kPositionBlock * sizeof(float);
}

// `count` queries of one key/value head, already rotated and scaled; query i
// sees the positions below visible[i].
struct Queries {
  const float* q;  // [count][head_dim]
  const int* visible;
  int count;
  int head_dim;
  KvType type;  // of the blocks they are put to
};

// The state of attention over some positions: exp-weighted values, the largest
// score, the sum of exp. Stored as head_dim + kPartialTail floats.
constexpr int kPartialTail = 8;  // maximum at [head_dim], sum at [head_dim + 1]; keeps rows aligned

// The gated delta rule. A value head has a state S[key_dim][value_dim] that each position changes:
//   S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q
// Computed in chunks of kDeltaChunk positions that begin at multiples of it, so that a chunk reads S and leaves it as
// it was at its start. With G_i = g_0 + ... + g_i, summed in order, position i of a chunk has
//   u_i = beta_i (v_i - (e^G_i (S^T k_i) + sum over j < i of e^(G_i - G_j) (k_j . k_i) u_j))
//   o_i = e^G_i (S^T q_i) + sum over j <= i of e^(G_i - G_j) (k_j . q_i) u_j
// and the first position of the next chunk folds S <- e^G_63 S + sum over j of e^(G_63 - G_j) k_j u_j^T. Every sum is
// one chain of fused steps: over key_dim ascending, or first the part of S and then j ascending; columns of value_dim
// do not meet. So one position at a time and a whole chunk are the same steps, and positions of the running chunk can
// be forgotten (rewind.h).
constexpr int kDeltaColumns = 32;   // of a state or an update that lie together
constexpr int kMostDeltaDim = 128;  // key_dim and value_dim, multiples of kDeltaColumns

// What a slot keeps of one layer, of one key head and the value heads that share it.
struct DeltaState {
  float* keys;     // [key_dim][kDeltaChunk]
  float* states;   // [heads], as of the chunk's start; items at delta_state_at
  float* updates;  // [heads], u of each position of the chunk; items at delta_update_at
  float* decays;   // [heads][kDeltaChunk]: G
  int heads;
  int key_dim;
  int value_dim;
  bool empty;  // the states are of no position, and all 0: not read

  float* state_of(int head) const { return states + static_cast<size_t>(head * key_dim) * value_dim; }
  float* updates_of(int head) const { return updates + static_cast<size_t>(head * kDeltaChunk) * value_dim; }
  float* decays_of(int head) const { return decays + head * kDeltaChunk; }
};

// Row d, column c of a state: [value_dim / kDeltaColumns][key_dim][kDeltaColumns].
constexpr size_t delta_state_at(int key_dim, int d, int c) {
  return static_cast<size_t>((c / kDeltaColumns * key_dim + d) * kDeltaColumns + c % kDeltaColumns);
}

// Column c of position j's update: [value_dim / kDeltaColumns][kDeltaChunk][kDeltaColumns].
constexpr size_t delta_update_at(int j, int c) { return delta_state_at(kDeltaChunk, j, c); }

// Consecutive rows within one chunk: of row i the query at q + i * stride, its gates at decay + i * gate_stride.
struct DeltaRows {
  const float* q;        // [key_dim], of length 1 / sqrt(key_dim)
  const float* k;        // [key_dim], of length 1
  const float* v;        // [value heads][value_dim], all of the layer's
  const float* decay;    // [value heads]: g
  const float* learned;  // [value heads]: beta
  float* out;            // [value heads][value_dim], out_stride apart
  size_t stride;
  size_t gate_stride;
  size_t out_stride;
  int count;
  int first;       // place in its chunk of the first row
  int first_head;  // the value heads are first_head, first_head + head_step, ...
  int head_step;
};

struct Ops {
  const char* isa;
  int key_lane;      // positions interleaved in a block's keys
  int decode_rows;   // up to so many rows the decode form of qlinear is the faster one
  int most_queries;  // queries that share one pass over a block, at most kMostQueries

  // out[columns] = row `token` of the table.
  void (*embed)(const Packed& table, int token, float* out);

  // out = x / sqrt(mean(x^2) + epsilon) * weight, over n values; n a multiple of 8; out may be x.
  void (*rmsnorm)(const float* x, const float* weight, int n, float epsilon, float* out);

  // int8 form of a row of n values, n a multiple of 32: scale = max|x| / 127, y = x * (127 / max|x|), q = round(y),
  // ties to even; its `refinements` blocks of largest scale, the lowest index first among equals, have the
  // residual round((y - q) * 256), at most 127 in size.
  void (*quantise)(const float* x, int n, const QuantisedRow& row);

  // Panels [begin, end) of a matrix times the rows; output 0 is the first row of panel `begin`.
  // The decode form reads the packed panel for a few rows at a time, the prefill form may unpack it
  // once into `scratch` (unpacked_bytes(matrix) bytes, 64-aligned).
  void (*qlinear_decode)(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output);
  void (*qlinear_prefill)(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output,
                          uint8_t* scratch);

  // Rotates pairs (2i, 2i + 1) of the first rope_dim values of one head, in place.
  void (*rope)(float* head, int rope_dim, const float* cosine, const float* sine);

  // The same of pairs (i, i + rope_dim / 2).
  void (*rope_halves)(float* head, int rope_dim, const float* cosine, const float* sine);

  // Stores one position of a block (0 to kPositionBlock - 1); halves are clamped to finite.
  void (*kv_write)(const float* key, const float* value, int head_dim, KvType type, int position, uint8_t* block);

  // Partial attention of the queries over the block whose first position is `first`; partial i at
  // partials + i * stride. `next` is the block that this thread will likely read next, or nullptr.
  void (*attention_decode)(const Queries& queries, const uint8_t* block, const uint8_t* next, int first,
                           float* partials, size_t stride);

  // Folds `count` consecutive partials, in order, and writes the normalised values to out[head_dim].
  void (*attention_fold)(const float* partials, int count, int head_dim, float* out);

  // Whole attention of the queries over consecutive blocks; query i to outputs[i][head_dim]. Same bytes as decode
  // and fold.
  void (*attention_prefill)(const Queries& queries, const uint8_t* const* blocks, float* const* outputs);

  // out = silu of each channel's sum over `taps` consecutive positions, oldest first, of weight times row; channel i's
  // weights at weights + tap * stride + i. n channels, a multiple of 8.
  void (*conv1d)(const float* const* rows, const float* weights, size_t stride, int taps, int n, float* out);

  // Of n value heads: decay = a * ln(1 + exp(alpha + bias)), learned = 1 / (1 + exp(-beta)).
  void (*delta_gates)(const float* alpha, const float* beta, const float* a, const float* bias, int n, float* decay,
                      float* learned);

  // Computes rows and takes them into their chunk; the states are those of its start.
  void (*delta)(const DeltaRows& rows, const DeltaState& chunk);

  // Takes a whole chunk into the states.
  void (*delta_fold)(const DeltaState& chunk);

  // out = gate / (1 + exp(-gate)) * up, over n values; n a multiple of 8; out may be up.
  void (*silu_mul)(const float* gate, const float* up, int n, float* out);

  // x = x / (1 + exp(-gate)), over n values; n a multiple of 8.
  void (*sigmoid_mul)(const float* gate, int n, float* x);

  // The lowest index of the largest of n values; NaN is never largest.
  int (*argmax)(const float* x, int n);
};

const Ops& plain_ops();
#ifdef ASSAY_HAS_X86
const Ops& avx2_ops();
const Ops& avx512_ops();
#endif

constexpr int kMostHeadDim = 256;
inline size_t partial_floats(int head_dim) { return static_cast<size_t>(head_dim) + kPartialTail; }

// Scratch the prefill form of qlinear needs for a panel of this many columns.
inline size_t unpacked_bytes(int columns) { return static_cast<size_t>(columns / kBlock) * 640; }

}  // namespace assay
