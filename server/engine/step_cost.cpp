#include "step_cost.h"

#include <algorithm>
#include <cmath>

#include "delta_slot.h"
#include "workspace.h"

namespace assay {
namespace {

constexpr int kTileTokens = 8;  // rows of activations that a matrix unit takes at once
// Of a block of 32 columns, a row of the matrix and one of activations:
constexpr double kDots = 8;         // dp4a of the decode form
constexpr double kScaled = 4;       // to a float, times the scale, a minimum, to the sum
constexpr double kRefined = 2;      // a residual's dot to a float, and added
constexpr double kScoreLanes = 16;  // of a score: scale, largest, exponential, two halves, sum
constexpr int kTimesAsHalves = 2;   // queries and weights are two halves each

// Adds up one step.
class Counter {
 public:
  Counter(const Config& config, const StepShape& shape)
      : config_(config),
        rows_(static_cast<double>(shape.sequences) * shape.rows),
        decode_(rows_ <= kMostDecodeRows),
        shape_(shape) {}

  // Rows of activations times a matrix, `refined` being the share of their blocks that is.
  void matrix(const MatrixPlan& matrix, double rows, double refined) {
    const double products = static_cast<double>(matrix.rows) * matrix.columns * rows;
    weight_bytes_ += static_cast<double>(matrix.bytes());
    if (is_float(matrix.type)) {
      vector_ += products;
    } else if (rows <= kMostDecodeRows) {
      vector_ += products / kBlock * (kDots * (1 + refined) + kScaled + kRefined * refined);
    } else {
      const double twice = 1 - std::pow(1 - refined, kTileTokens);
      int8_ += 2 * products * (1 + twice);
      vector_ += products / kBlock * (kScaled + kRefined * twice);
    }
    moved(rows * matrix.rows * sizeof(float));
  }

  void stack(const StackPlan& stack) {
    for (const MatrixPlan& part : stack.parts) {
      const int blocks = part.columns / kBlock;
      matrix(part, rows_, static_cast<double>(few_refinements(blocks)) / blocks);
    }
  }

  // A row made activations: floats read, two int8 and the scales written, and read again by a product.
  void quantised(double columns) { moved(rows_ * columns * (sizeof(float) + 2 * 2)); }

  void attention(KvType kv) {
    const double group = config_.heads / config_.kv_heads;
    const double head_bytes = static_cast<double>(KvLayout{kv, config_.head_dim}.head_bytes()) / kPositionBlock;
    const double seen = shape_.position + (shape_.rows + 1) / 2.0;  // by a row, in the mean
    const double pairs = group * (shape_.rows == 1 ? 1 : shape_.rows);
    const double tiles = std::ceil(pairs / kTileQueries) * shape_.sequences * config_.kv_heads;
    half_ += tiles * kTileQueries * seen * config_.head_dim * 2 * 2 * kTimesAsHalves;
    vector_ += tiles * kTileQueries * seen * kScoreLanes;
    kv_bytes_ += (tiles * seen + rows_ * config_.kv_heads) * head_bytes;
    moved(rows_ * (config_.q_width() + 2.0 * config_.kv_width()) * 2 * sizeof(float));
  }

  // The delta rule reads the state of each sequence once, with half a chunk of what was written since in the mean, and
  // writes it where a chunk ends among the rows.
  void delta() {
    const DeltaShape& shape = config_.delta;
    const double values = shape.value_width(), keys = shape.key_width(), seen = kDeltaChunk / 2.0;
    const double state = values * shape.key_dim;
    const double written = std::min(1.0, static_cast<double>(shape_.rows) / kDeltaChunk);
    state_bytes_ += shape_.sequences * sizeof(float) *
                    (state * (1 + written) + seen * (values + keys) +
                     (kept_rows(shape.conv) - kRewind) * static_cast<double>(shape.width()));
    // A row: S with key and query, its part of the chunk's sum to S, the chunk's keys and what was written.
    vector_ += rows_ * (3 * state + 2 * seen * (values + shape.value_heads * static_cast<double>(shape.key_dim)) +
                        static_cast<double>(shape.conv) * shape.width());
    moved(rows_ * (5.0 * shape.width() + 2 * values) * sizeof(float));
  }

  StepCost total() const {
    const auto whole = [](double value) { return static_cast<uint64_t>(value); };
    // One instruction a lane is two operations.
    return {whole(weight_bytes_),     whole(kv_bytes_), whole(state_bytes_),
            whole(activation_bytes_), whole(int8_),     whole(half_),
            whole(2 * vector_)};
  }

  double rows() const { return rows_; }

 private:
  void moved(double bytes) {
    if (!decode_) activation_bytes_ += bytes;
  }

  const Config& config_;
  double rows_;
  bool decode_;
  StepShape shape_;
  double weight_bytes_ = 0, kv_bytes_ = 0, state_bytes_ = 0, activation_bytes_ = 0, int8_ = 0, half_ = 0, vector_ = 0;
};

}  // namespace

StepCost step_cost(const DeviceWeights& weights, const Config& config, KvType kv, const StepShape& shape) {
  Counter counter(config, shape);
  for (const LayerTensors& layer : weights.layers()) {
    counter.quantised(config.width);
    counter.stack(layer.input);
    if (layer.kind == LayerKind::attention) {
      counter.attention(kv);
      counter.quantised(config.gated ? 2.0 * config.q_width() : config.q_width());
    } else {
      counter.delta();
      counter.quantised(2.0 * config.delta.value_width());
    }
    counter.stack(layer.output);
    counter.quantised(config.width);
    counter.stack(layer.gate_up);
    counter.quantised(2.0 * config.ffn);
    counter.stack(layer.down);
  }
  const MatrixPlan& head = weights.head() == nullptr ? weights.embedding() : *weights.head();
  if (shape.logits > 0) counter.matrix(head, shape.logits, 1);
  return counter.total();
}

}  // namespace assay
