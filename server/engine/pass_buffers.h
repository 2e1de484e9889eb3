// The memory a pass works in, made once for the largest pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "config.h"
#include "mapping.h"
#include "ops.h"
#include "rope_table.h"

namespace assay {

constexpr int kPassRows = 256;

// Passes of at most this many rows: every thread prepares the activations it
// reads for itself, which costs less than one more phase that all wait for.
constexpr int kOwnRows = 4;

constexpr int kFfnPanels = 2;  // of gate and of up in a unit, which lie interleaved

// Hands out 64-byte-aligned arrays of one allocation.
class Arena {
 public:
  template <typename T>
  void plan(T** field, size_t count) {
    requests_.push_back({reinterpret_cast<void**>(field), size_});
    size_ += (count * sizeof(T) + 63) & ~size_t{63};
  }
  void allocate() {
    pages_ = Pages(size_);
    for (const Request& request : requests_) *request.field = pages_.data() + request.offset;
    requests_.clear();
  }

 private:
  struct Request {
    void** field;
    size_t offset;
  };
  std::vector<Request> requests_;
  size_t size_ = 0;
  Pages pages_;
};

// The storage behind Rows (ops.h).
struct ActivationBuffer {
  void plan(Arena& arena, int rows, int columns) {
    const size_t values = static_cast<size_t>(rows) * static_cast<size_t>(columns);
    const size_t blocks = values / kBlock;
    arena.plan(&x, values);
    arena.plan(&q, 2 * values);  // every block refined: the most there can be
    arena.plan(&scale, 2 * blocks);
    arena.plan(&sum, 2 * blocks);
    arena.plan(&refined, blocks);
  }

  float* values(int row, int columns) const { return x + static_cast<size_t>(row) * static_cast<size_t>(columns); }

  QuantisedRow row(int index, int columns, int refinements) const {
    const size_t at = static_cast<size_t>(index);
    const size_t stored = at * static_cast<size_t>(columns / kBlock + refinements);
    return {q + stored * kBlock, scale + stored, sum + stored, refined + at * static_cast<size_t>(refinements),
            refinements};
  }

  Rows rows(int refinements, int count) const { return {x, q, scale, sum, refined, refinements, count}; }

  float* x;
  int8_t* q;
  float* scale;
  float* sum;
  int32_t* refined;
};

constexpr float kDeltaEpsilon = 1e-6f;  // of the norm by length of queries and keys

// What the rows of a pass have in a layer of the gated delta rule.
struct DeltaBuffers {
  void plan(Arena& arena, const Config& config, size_t count) {
    const DeltaShape& shape = config.delta;
    const auto padded = [](int values) {
      return static_cast<size_t>((values + kPanelRows - 1) / kPanelRows * kPanelRows);
    };
    row_stride = padded(shape.width());
    z_stride = padded(shape.value_width());
    gate_stride = padded(shape.value_heads);
    for (float** each : {&rows, &convolved}) arena.plan(each, count * row_stride);
    arena.plan(&z, count * z_stride);
    for (float** each : {&alpha, &beta, &decay, &learned}) arena.plan(each, count * gate_stride);
    arena.plan(&zeros, row_stride);
    for (float** each : {&query_norm, &key_norm}) arena.plan(each, static_cast<size_t>(shape.key_dim));
  }

  // A norm by length is a norm by the mean square with these weights; queries are also divided by sqrt(key_dim).
  void fill(const DeltaShape& shape) const {
    const float size = static_cast<float>(shape.key_dim);
    std::fill_n(query_norm, shape.key_dim, 1.0f / size);
    std::fill_n(key_norm, shape.key_dim, 1.0f / std::sqrt(size));
  }

  size_t row_stride, z_stride, gate_stride;
  float *rows, *convolved;                // [row][delta.width()], before and behind the convolution
  float* z;                               // [row][value_width]
  float *alpha, *beta, *decay, *learned;  // [row][value_heads]
  float* zeros;                           // a row before the sequence
  float *query_norm, *key_norm;           // [key_dim]
};

struct PassBuffers {
  // What one thread needs for itself.
  struct Scratch {
    uint8_t* unpacked;
    float* gate;
    float* up;
    float* queries;
    ActivationBuffer own;                // of kOwnRows rows
    std::vector<const uint8_t*> blocks;  // that an attention unit reads
  };

  PassBuffers(const Config& config, int slots, int context, int threads)
      : rope(context, config.rope_dim, config.rope_base, config.rope_sections),
        blocks((context + kPositionBlock - 1) / kPositionBlock),
        scratch(static_cast<size_t>(threads)) {
    const size_t rows = kPassRows;
    const int wide = std::max({config.width, config.q_width(), config.delta.value_width()});
    const int widest = std::max(wide, config.ffn);
    q_stride = padded(config.q_rows());
    kv_stride = padded(config.kv_width());
    arena.plan(&residual, rows * static_cast<size_t>(config.width));
    arena.plan(&queries, rows * q_stride);
    arena.plan(&keys, rows * kv_stride);
    arena.plan(&values, rows * kv_stride);
    delta.plan(arena, config, config.count(LayerKind::delta) == 0 ? 0 : rows);
    input.plan(arena, kPassRows, wide);
    hidden.plan(arena, kPassRows, config.ffn);
    arena.plan(&partials, static_cast<size_t>(std::min(slots, kPassRows)) * static_cast<size_t>(config.heads) *
                              static_cast<size_t>(blocks) * partial_floats(config.head_dim));
    for (Scratch& each : scratch) {
      arena.plan(&each.unpacked, unpacked_bytes(widest));
      arena.plan(&each.gate, rows * kFfnPanels * kPanelRows);
      arena.plan(&each.up, rows * kFfnPanels * kPanelRows);
      arena.plan(&each.queries, static_cast<size_t>(kMostQueries * config.head_dim));
      each.own.plan(arena, kOwnRows, widest);
      each.blocks.reserve(static_cast<size_t>(blocks));
    }
    arena.allocate();
    delta.fill(config.delta);
  }

  static size_t padded(int rows) { return static_cast<size_t>((rows + kPanelRows - 1) / kPanelRows * kPanelRows); }

  // Partial attention of a decoding row's head over a position block.
  float* partial(const Config& config, int decode_row, int head, int block) const {
    const size_t index = static_cast<size_t>(decode_row * config.heads + head) * static_cast<size_t>(blocks);
    return partials + (index + static_cast<size_t>(block)) * partial_floats(config.head_dim);
  }

  RopeTable rope;
  int blocks;  // position blocks a slot can hold
  size_t q_stride, kv_stride;
  float *residual, *queries, *keys, *values;
  DeltaBuffers delta;
  ActivationBuffer input;   // what the next linear operation reads
  ActivationBuffer hidden;  // what `down` reads
  float* partials;          // [decode row][head][block]
  std::vector<Scratch> scratch;
  Arena arena;
};

}  // namespace assay
