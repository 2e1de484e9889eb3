#include "forward.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

constexpr int kHeadPanels = 4;  // panels of the output head in a unit
constexpr int kOutputPanels = 1;
constexpr int kOwnPartials = 48;  // partial results that every thread folds for itself rather than in a phase

}  // namespace

// One thread's way through a pass.
class Forward::Worker {
 public:
  Worker(Forward& forward, const Pass& pass, const PassPlan& plan, Team::Member& member)
      : config_(forward.config_),
        weights_(forward.weights_),
        cache_(forward.cache_),
        ops_(forward.ops_),
        buffers_(forward.buffers_),
        scratch_(forward.buffers_.scratch[static_cast<size_t>(member.index())]),
        pass_(pass),
        plan_(plan),
        member_(member) {}

  void run() {
    member_.phase(plan_.rows, [&](int row) {
      ops_.embed(weights_.embedding(), pass_.tokens[static_cast<size_t>(row)], residual(row));
    });
    for (int index = 0; index < config_.layers; ++index) {
      const Layer& layer = weights_.layers()[static_cast<size_t>(index)];
      project_heads(index, layer);
      attend(index);
      add_attended(layer);
      feed_forward(layer);
      add_hidden(layer);
    }
    if (!pass_.wanted.empty()) predict();
  }

 private:
  float* residual(int row) const {
    return buffers_.residual + static_cast<size_t>(row) * static_cast<size_t>(config_.width);
  }

  static int few(int columns) { return few_refinements(columns / kBlock); }

  // A phase of `units` over activations of `rows` rows that `prepare(buffer, row)` makes: by each
  // thread for itself when they are few, else in a phase of their own into `shared`.
  template <typename Prepare, typename Body>
  void prepared_phase(int rows, const ActivationBuffer& shared, const Prepare& prepare, int units, const Body& body) {
    if (rows <= kOwnRows) {
      const auto prepare_all = [&] {
        for (int row = 0; row < rows; ++row) prepare(scratch_.own, row);
      };
      member_.phase(units, prepare_all, [&](int unit) { body(scratch_.own, unit); });
      return;
    }
    member_.phase(rows, [&](int row) { prepare(shared, row); });
    member_.phase(units, [&](int unit) { body(shared, unit); });
  }

  void linear(const Packed& matrix, int begin, int end, const Rows& input, const Output& output) {
    if (input.count <= ops_.decode_rows) {
      ops_.qlinear_decode(matrix, begin, end, input, output);
    } else {
      ops_.qlinear_prefill(matrix, begin, end, input, output, scratch_.unpacked);
    }
  }

  void normalise(const ActivationBuffer& buffer, int row, const float* x, const std::vector<float>& weight,
                 int refinements) {
    ops_.rmsnorm(x, weight.data(), config_.width, config_.epsilon, buffer.values(row, config_.width));
    quantise(buffer, row, buffer.values(row, config_.width), config_.width, refinements);
  }

  void quantise(const ActivationBuffer& buffer, int row, const float* x, int width, int refinements) {
    ops_.quantise(x, width, buffer.row(row, width, refinements));
  }

  // Queries, keys and values of every row; a unit is whole heads, so that it can rotate and store them.
  void project_heads(int layer_index, const Layer& layer) {
    const int heads_a_unit = config_.head_dim % kPanelRows == 0 ? 1 : 2;
    const int panels_a_unit = heads_a_unit * config_.head_dim / kPanelRows;
    const int q_units = (config_.heads + heads_a_unit - 1) / heads_a_unit;
    const int kv_units = (config_.kv_heads + heads_a_unit - 1) / heads_a_unit;
    const auto prepare = [&](const ActivationBuffer& buffer, int row) {
      normalise(buffer, row, residual(row), layer.attention_norm, few(config_.width));
    };
    const auto project = [&](const ActivationBuffer& buffer, const Packed& matrix, int unit, float* out,
                             size_t stride) {
      const int begin = unit * panels_a_unit;
      linear(matrix, begin, std::min(begin + panels_a_unit, matrix.panels()),
             buffer.rows(few(config_.width), plan_.rows), {out + begin * kPanelRows, stride, false});
    };
    const auto rotate = [&](int unit, int heads, float* out, size_t stride) {
      for (int row = 0; row < plan_.rows; ++row) {
        const int position = plan_.position(row);
        for (int head = unit * heads_a_unit; head < std::min((unit + 1) * heads_a_unit, heads); ++head) {
          ops_.rope(out + static_cast<size_t>(row) * stride + head * config_.head_dim, config_.rope_dim,
                    buffers_.rope.cosines(position), buffers_.rope.sines(position));
        }
      }
    };
    prepared_phase(plan_.rows, buffers_.input, prepare, q_units + kv_units,
                   [&](const ActivationBuffer& buffer, int unit) {
                     if (unit < q_units) {
                       project(buffer, layer.q, unit, buffers_.queries, buffers_.q_stride);
                       rotate(unit, config_.heads, buffers_.queries, buffers_.q_stride);
                       return;
                     }
                     const int kv_unit = unit - q_units;
                     project(buffer, layer.k, kv_unit, buffers_.keys, buffers_.kv_stride);
                     rotate(kv_unit, config_.kv_heads, buffers_.keys, buffers_.kv_stride);
                     project(buffer, layer.v, kv_unit, buffers_.values, buffers_.kv_stride);
                     store(layer_index, kv_unit * heads_a_unit,
                           std::min((kv_unit + 1) * heads_a_unit, config_.kv_heads));
                   });
  }

  void store(int layer, int begin, int end) {
    for (int row = 0; row < plan_.rows; ++row) {
      const int position = plan_.position(row);
      uint8_t* block = cache_.table(pass_.segments[static_cast<size_t>(plan_.segment(row))].slot)[position / kPositionBlock];
      for (int head = begin; head < end; ++head) {
        const size_t at = static_cast<size_t>(row) * buffers_.kv_stride + static_cast<size_t>(head * config_.head_dim);
        ops_.kv_write(buffers_.keys + at, buffers_.values + at, config_.head_dim, cache_.type(),
                      position % kPositionBlock, block + cache_.offset(layer, head));
      }
    }
  }

  void attend(int layer) {
    member_.phase(static_cast<int>(plan_.units.size()),
                  [&](int index) { attend_unit(layer, index); });
  }

  // Where the prefill form puts the attention of one query head.
  float* attended(int row, int head) const {
    return buffers_.input.values(row, config_.q_width()) + head * config_.head_dim;
  }

  // What a unit of the decode form reads, or nullptr for the others.
  const uint8_t* read_by(int layer, size_t index) const {
    if (index >= plan_.units.size() || plan_.units[index].block < 0) return nullptr;
    const AttentionUnit& unit = plan_.units[index];
    uint8_t* const* table = cache_.table(pass_.segments[static_cast<size_t>(unit.segment)].slot);
    return table[unit.block] + cache_.offset(layer, unit.kv_head);
  }

  void attend_unit(int layer, int index) {
    const AttentionUnit& unit = plan_.units[static_cast<size_t>(index)];
    const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    int visible[kMostQueries];
    float* outputs[kMostQueries];
    int count = 0;
    for (int row = unit.row; row < unit.row + unit.rows; ++row) {
      for (int head = unit.head; head < unit.head + unit.heads; ++head, ++count) {
        const float* query = buffers_.queries + static_cast<size_t>(row) * buffers_.q_stride + head * config_.head_dim;
        for (int i = 0; i < config_.head_dim; ++i) scratch_.queries[count * config_.head_dim + i] = query[i] * scale;
        visible[count] = plan_.position(row) + 1;
        outputs[count] = attended(row, head);
      }
    }
    const Queries queries{scratch_.queries, visible, count, config_.head_dim, cache_.type()};
    uint8_t* const* table = cache_.table(pass_.segments[static_cast<size_t>(unit.segment)].slot);
    if (unit.block < 0) {
      const size_t offset = cache_.offset(layer, unit.kv_head);
      scratch_.blocks.clear();
      for (int first = 0; first < visible[count - 1]; first += kPositionBlock) {
        scratch_.blocks.push_back(table[first / kPositionBlock] + offset);
      }
      ops_.attention_prefill(queries, scratch_.blocks.data(), outputs);
      return;
    }
    const size_t stride = static_cast<size_t>(buffers_.blocks) * partial_floats(config_.head_dim);
    const int decode_row = plan_.decode_row[static_cast<size_t>(unit.row)];
    const size_t at = static_cast<size_t>(index);
    ops_.attention_decode(queries, read_by(layer, at), read_by(layer, at + 1), unit.block * kPositionBlock,
                          buffers_.partial(config_, decode_row, unit.head, unit.block), stride);
  }

  // The whole attention of some heads of a row, folded from partial results where it decodes, to their places
  // in out[q_width].
  void fold(int row, int first, int heads, float* out) {
    const int decode_row = plan_.decode_row[static_cast<size_t>(row)];
    if (decode_row < 0) return;  // the prefill form has written it
    const int blocks = plan_.position(row) / kPositionBlock + 1;
    for (int head = first; head < first + heads; ++head) {
      ops_.attention_fold(buffers_.partial(config_, decode_row, head, 0), blocks, config_.head_dim,
                          out + head * config_.head_dim);
    }
  }

  void add_attended(const Layer& layer) {
    const int width = config_.q_width();
    const bool folded = plan_.rows <= kOwnRows && plan_.partials > kOwnPartials;
    if (folded) {
      member_.phase(plan_.rows * config_.heads, [&](int unit) {
        const int row = unit / config_.heads;
        fold(row, unit % config_.heads, 1, attended(row, 0));
      });
    }
    const auto prepare = [&](const ActivationBuffer& buffer, int row) {
      float* x = buffer.values(row, width);
      if (folded || plan_.decode_row[static_cast<size_t>(row)] < 0) {
        if (x != attended(row, 0)) std::copy_n(attended(row, 0), width, x);
      } else {
        fold(row, 0, config_.heads, x);
      }
      quantise(buffer, row, x, width, few(width));
    };
    add_linear(layer.output, buffers_.input, prepare);
  }

  void add_hidden(const Layer& layer) {
    add_linear(layer.down, buffers_.hidden, [&](const ActivationBuffer& buffer, int row) {
      const float* x = buffers_.hidden.values(row, config_.ffn);
      if (!layer.down.quantised() && buffer.x != buffers_.hidden.x) {
        std::copy_n(x, config_.ffn, buffer.values(row, config_.ffn));
      }
      quantise(buffer, row, x, config_.ffn, few(config_.ffn));
    });
  }

  // Adds a matrix's product with the prepared activations to the residual.
  template <typename Prepare>
  void add_linear(const Packed& matrix, const ActivationBuffer& shared, const Prepare& prepare) {
    prepared_phase(plan_.rows, shared, prepare, (matrix.panels() + kOutputPanels - 1) / kOutputPanels,
                   [&](const ActivationBuffer& buffer, int unit) {
                     const int begin = unit * kOutputPanels;
                     linear(matrix, begin, std::min(begin + kOutputPanels, matrix.panels()),
                            buffer.rows(few(matrix.columns), plan_.rows),
                            {buffers_.residual + begin * kPanelRows, static_cast<size_t>(config_.width), true});
                   });
  }

  void feed_forward(const Layer& layer) {
    constexpr int kOutputs = kFfnPanels * kPanelRows;
    const auto prepare = [&](const ActivationBuffer& buffer, int row) {
      normalise(buffer, row, residual(row), layer.ffn_norm, few(config_.width));
    };
    prepared_phase(plan_.rows, buffers_.input, prepare, (layer.gate.panels() + kFfnPanels - 1) / kFfnPanels,
                   [&](const ActivationBuffer& buffer, int unit) {
                     const int begin = unit * kFfnPanels;
                     const int end = std::min(begin + kFfnPanels, layer.gate.panels());
                     const Rows input = buffer.rows(few(config_.width), plan_.rows);
                     linear(layer.gate, begin, end, input, {scratch_.gate, kOutputs, false});
                     linear(layer.up, begin, end, input, {scratch_.up, kOutputs, false});
                     for (int row = 0; row < plan_.rows; ++row) {
                       ops_.silu_mul(scratch_.gate + row * kOutputs, scratch_.up + row * kOutputs, kOutputs,
                                     buffers_.hidden.values(row, config_.ffn) + begin * kPanelRows);
                     }
                   });
  }

  // Logits and greedy ids of the wanted rows.
  void predict() {
    const int wanted = static_cast<int>(pass_.wanted.size());
    const int all_blocks = config_.width / kBlock;
    const Packed& head = weights_.head();
    const size_t vocabulary = static_cast<size_t>(config_.vocabulary);
    const auto prepare = [&](const ActivationBuffer& buffer, int row) {
      normalise(buffer, row, residual(pass_.wanted[static_cast<size_t>(row)]), weights_.output_norm(), all_blocks);
    };
    prepared_phase(wanted, buffers_.input, prepare, (head.panels() + kHeadPanels - 1) / kHeadPanels,
                   [&](const ActivationBuffer& buffer, int unit) {
                     const int begin = unit * kHeadPanels;
                     linear(head, begin, std::min(begin + kHeadPanels, head.panels()), buffer.rows(all_blocks, wanted),
                            {pass_.logits + begin * kPanelRows, vocabulary, false});
                   });
    member_.phase(wanted, [&](int row) {
      pass_.greedy[row] = ops_.argmax(pass_.logits + static_cast<size_t>(row) * vocabulary, config_.vocabulary);
    });
  }

  const Config& config_;
  const Weights& weights_;
  const Cache& cache_;
  const Ops& ops_;
  const PassBuffers& buffers_;
  PassBuffers::Scratch& scratch_;
  const Pass& pass_;
  const PassPlan& plan_;
  Team::Member& member_;
};

Forward::Forward(const Config& config, const Weights& weights, const Cache& cache, const Ops& ops, Team& team,
                 int slots, int context)
    : config_(config),
      weights_(weights),
      cache_(cache),
      ops_(ops),
      team_(team),
      buffers_(config, slots, context, team.size()) {}

void Forward::run(const Pass& pass) {
  const PassPlan plan(config_, pass, ops_.most_queries);
  team_.run([&](Team::Member& member) { Worker(*this, pass, plan, member).run(); });
}

}  // namespace assay
