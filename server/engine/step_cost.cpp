#include "step_cost.h"

#include <algorithm>
#include <cmath>

#include "delta_slot.h"
#include "workspace.h"

namespace assay {
namespace {

constexpr int kTileTokens = 8;  // rows of activations that a matrix unit takes at once
constexpr double kScoreLanes = 43;  // of a score: scale, largest, exponential, two halves, sum
constexpr int kTimesAsHalves = 2;   // queries and weights are two halves each

// Instructions that a block of 32 columns takes, of one row of the matrix and one of activations.
struct Instructions {
  double decode;
  double prefill;
};

constexpr Instructions kRefined = {24, 112 / 32.0};  // more, where the block is

Instructions instructions(TensorType type) {
  switch (type) {
    case TensorType::q4_k:
    case TensorType::q5_k:
      return {79, 236 / 32.0};
    case TensorType::q6_k:
      return {99, 265 / 32.0};
    case TensorType::nvfp4:
      return {135, 265 / 32.0};
    default:
      return {66, 209 / 32.0};
  }
}

// Instructions of a lane for a key and a value of a tile: read, widened, multiplied, folded (sm_86's code).
double lanes_of_item(KvType kv) { return kv == KvType::f16 ? 6.0 : kv == KvType::int8 ? 8.3 : 18.0; }

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
    products_.bytes += static_cast<double>(matrix.bytes());
    const Instructions each = instructions(matrix.type);
    if (is_float(matrix.type)) {
      products_.vector += products;
    } else if (rows <= kMostDecodeRows) {
      products_.vector += products / kBlock * (each.decode + kRefined.decode * refined);
    } else {
      const double twice = 1 - std::pow(1 - refined, kTileTokens);
      products_.int8 += 2 * products * (1 + twice);
      products_.vector += products / kBlock * (each.prefill + kRefined.prefill * twice);
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
    attention_.half += tiles * kTileQueries * seen * config_.head_dim * 2 * 2 * kTimesAsHalves;
    attention_.vector += tiles * seen * (kTileQueries * kScoreLanes + config_.head_dim * lanes_of_item(kv));
    // Tiles of one block of threads read the same keys and values together.
    const double reads = shape_.rows == 1 ? tiles : std::ceil(tiles / (config_.head_dim > 128 ? 2 : 4));
    attention_.bytes += (reads * seen + rows_ * config_.kv_heads) * head_bytes;
    moved(rows_ * (config_.q_width() + 2.0 * config_.kv_width()) * 2 * sizeof(float));
  }

  // The delta rule reads the state of each sequence once, with half a chunk of what was written since in the mean, and
  // writes it where a chunk ends among the rows.
  void delta() {
    const DeltaShape& shape = config_.delta;
    const double values = shape.value_width(), keys = shape.key_width(), seen = kDeltaChunk / 2.0;
    const double state = values * shape.key_dim;
    const double written = std::min(1.0, static_cast<double>(shape_.rows) / kDeltaChunk);
    delta_.bytes += shape_.sequences * sizeof(float) *
                    (state * (1 + written) + seen * (values + keys) +
                     (kept_rows(shape.conv) - kRewind) * static_cast<double>(shape.width()));
    // A row: S with key and query, its part of the chunk's sum to S, the chunk's keys and what was written.
    delta_.vector += rows_ * (3 * state + 2 * seen * (values + shape.value_heads * static_cast<double>(shape.key_dim)) +
                              static_cast<double>(shape.conv) * shape.width());
    moved(rows_ * (5.0 * shape.width() + 2 * values) * sizeof(float));
  }

  StepCost total() const { return {products_.whole(), attention_.whole(), delta_.whole(), between_.whole()}; }

 private:
  struct Sum {
    double bytes = 0, int8 = 0, half = 0, vector = 0;

    assay_work whole() const {
      // One instruction a lane is two operations.
      return {static_cast<uint64_t>(bytes), static_cast<uint64_t>(int8), static_cast<uint64_t>(half),
              static_cast<uint64_t>(2 * vector)};
    }
  };

  void moved(double bytes) {
    if (!decode_) between_.bytes += bytes;
  }

  const Config& config_;
  double rows_;
  bool decode_;
  StepShape shape_;
  Sum products_, attention_, delta_, between_;
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
