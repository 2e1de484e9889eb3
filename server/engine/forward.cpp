#include "forward.h"

#include <algorithm>
#include <cmath>

#include "mapping.h"
#include "rope_table.h"

namespace assay {
namespace {

constexpr int kDecodeRows = 2;  // up to this many rows the packed panels are read for each row
constexpr int kHeadPanels = 4;  // panels of the output head in a unit
constexpr int kOutputPanels = 1;
constexpr int kFfnPanels = 2;  // of gate and of up, which lie interleaved

size_t aligned(size_t size) { return (size + 63) & ~size_t{63}; }

// Hands out 64-byte-aligned arrays of one allocation.
class Arena {
 public:
  template <typename T>
  void plan(T** field, size_t count) {
    requests_.push_back({reinterpret_cast<void**>(field), size_});
    size_ += aligned(count * sizeof(T));
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

// Part of a pass's attention that one thread computes alone.
struct AttentionUnit {
  int segment;
  int row;   // first row, in the pass
  int rows;  // consecutive rows
  int kv_head;
  int head;   // first query head
  int heads;  // consecutive query heads of the key/value head
  int block;  // the position block, or -1: all of them (prefill form)
};

}  // namespace

// The storage behind Rows.
struct ActivationBuffer {
  void plan(Arena& arena, size_t rows, size_t columns) {
    const size_t blocks = rows * (columns / kBlock);
    arena.plan(&x, rows * columns);
    arena.plan(&q, 2 * blocks * kBlock);  // every block refined: the most there can be
    arena.plan(&scale, 2 * blocks);
    arena.plan(&sum, 2 * blocks);
    arena.plan(&refined, blocks);
  }

  QuantisedRow row(int index, int columns, int refinements) const {
    const size_t at = static_cast<size_t>(index);
    const size_t stored = at * static_cast<size_t>(columns / kBlock + refinements);
    return {q + stored * kBlock, scale + stored, sum + stored, refined + at * static_cast<size_t>(refinements),
            refinements};
  }

  float* x;
  int8_t* q;
  float* scale;
  float* sum;
  int32_t* refined;
};

struct Forward::Buffers {
  Buffers(const Config& config, int slots, int context, int threads)
      : rope(context, config.rope_dim, config.rope_base),
        blocks((context + kPositionBlock - 1) / kPositionBlock),
        scratch(static_cast<size_t>(threads)) {
    const size_t rows = kPassRows;
    const size_t width = static_cast<size_t>(config.width);
    const size_t q_width = static_cast<size_t>(config.q_width());
    const size_t ffn = static_cast<size_t>(config.ffn);
    const size_t wide = std::max(std::max(width, q_width), ffn);
    q_stride = padded(config.q_width());
    kv_stride = padded(config.kv_width());
    arena.plan(&residual, rows * width);
    arena.plan(&queries, rows * q_stride);
    arena.plan(&keys, rows * kv_stride);
    arena.plan(&values, rows * kv_stride);
    input.plan(arena, rows, wide);
    hidden.plan(arena, rows, ffn);
    partial_rows = static_cast<size_t>(std::min(slots, kPassRows));
    arena.plan(&partials, partial_rows * static_cast<size_t>(config.heads) * static_cast<size_t>(blocks) *
                              partial_floats(config.head_dim));
    for (Scratch& each : scratch) {
      arena.plan(&each.unpacked, unpacked_bytes(static_cast<int>(wide)));
      arena.plan(&each.gate, rows * kFfnPanels * kPanelRows);
      arena.plan(&each.up, rows * kFfnPanels * kPanelRows);
      arena.plan(&each.queries, static_cast<size_t>(kMostQueries * config.head_dim));
    }
    arena.allocate();
  }

  static size_t padded(int rows) { return static_cast<size_t>((rows + kPanelRows - 1) / kPanelRows * kPanelRows); }

  struct Scratch {
    uint8_t* unpacked;
    float* gate;
    float* up;
    float* queries;
  };

  RopeTable rope;
  int blocks;  // position blocks a slot can hold
  size_t q_stride, kv_stride;
  float *residual, *queries, *keys, *values;
  ActivationBuffer input;   // what the next linear operation reads
  ActivationBuffer hidden;  // what `down` reads
  float* partials;          // [decode row][head][block]
  size_t partial_rows;
  std::vector<Scratch> scratch;
  Arena arena;
};

struct Forward::Plan {
  Plan(const Config& config, const Pass& pass) : rows(static_cast<int>(pass.tokens.size())) {
    row_segment.resize(pass.tokens.size());
    decode_row.assign(pass.tokens.size(), -1);
    const int group = config.heads / config.kv_heads;
    const int tile_heads = std::min(group, kMostQueries);
    const int tile_rows = std::max(1, kMostQueries / tile_heads);
    for (size_t index = 0; index < pass.segments.size(); ++index) {
      const Segment& segment = pass.segments[index];
      std::fill_n(row_segment.begin() + segment.first, segment.count, static_cast<int>(index));
      const bool decode = segment.count == 1;
      if (decode) decode_row[static_cast<size_t>(segment.first)] = decode_rows++;
      const int blocks = decode ? segment.position / kPositionBlock + 1 : 1;
      for (int row = 0; row < segment.count; row += tile_rows) {
        for (int kv_head = 0; kv_head < config.kv_heads; ++kv_head) {
          for (int head = 0; head < group; head += tile_heads) {
            for (int block = 0; block < blocks; ++block) {
              units.push_back({static_cast<int>(index), segment.first + row, std::min(tile_rows, segment.count - row),
                               kv_head, kv_head * group + head, std::min(tile_heads, group - head),
                               decode ? block : -1});
            }
          }
        }
      }
    }
    // The last rows see the most positions; begun first, they end no later than the rest.
    std::reverse(units.begin(), units.end());
  }

  int position(const Pass& pass, int row) const {
    const Segment& segment = pass.segments[static_cast<size_t>(row_segment[static_cast<size_t>(row)])];
    return segment.position + row - segment.first;
  }

  int rows;
  int decode_rows = 0;
  std::vector<int> row_segment;
  std::vector<int> decode_row;  // index among the rows that attend block by block, or -1
  std::vector<AttentionUnit> units;
};

// One thread's way through a pass.
class Forward::Worker {
 public:
  Worker(Forward& forward, const Pass& pass, const Plan& plan, Team::Member& member)
      : config_(forward.config_),
        weights_(forward.weights_),
        cache_(forward.cache_),
        ops_(forward.ops_),
        buffers_(*forward.buffers_),
        scratch_(forward.buffers_->scratch[static_cast<size_t>(member.index())]),
        pass_(pass),
        plan_(plan),
        member_(member) {}

  void run() {
    each_row([&](int row) { ops_.embed(weights_.embedding(), pass_.tokens[static_cast<size_t>(row)], residual(row)); });
    for (int index = 0; index < config_.layers; ++index) {
      const Layer& layer = weights_.layers()[static_cast<size_t>(index)];
      each_row([&](int row) { normalise(row, residual(row), layer.attention_norm, few(config_.width)); });
      project_heads(index, layer);
      attend(index);
      each_row([&](int row) { gather_attention(row); });
      add_linear(layer.output, buffers_.input);
      each_row([&](int row) { normalise(row, residual(row), layer.ffn_norm, few(config_.width)); });
      feed_forward(layer);
      add_linear(layer.down, buffers_.hidden);
    }
    if (pass_.wanted.empty()) return;
    const int wanted = static_cast<int>(pass_.wanted.size());
    const int all_blocks = config_.width / kBlock;
    member_.phase(wanted, [&](int row) {
      normalise(row, residual(pass_.wanted[static_cast<size_t>(row)]), weights_.output_norm(), all_blocks);
    });
    const Packed& head = weights_.head();
    const size_t vocabulary = static_cast<size_t>(config_.vocabulary);
    panels(head, kHeadPanels, [&](int begin, int end) {
      linear(head, begin, end, rows(buffers_.input, all_blocks, wanted),
             {pass_.logits + begin * kPanelRows, vocabulary, false});
    });
    member_.phase(wanted, [&](int row) {
      const float* logits = pass_.logits + static_cast<size_t>(row) * vocabulary;
      pass_.greedy[row] = ops_.argmax(logits, config_.vocabulary);
    });
  }

 private:
  float* residual(int row) const {
    return buffers_.residual + static_cast<size_t>(row) * static_cast<size_t>(config_.width);
  }

  static Rows rows(const ActivationBuffer& buffer, int refinements, int count) {
    return {buffer.x, buffer.q, buffer.scale, buffer.sum, buffer.refined, refinements, count};
  }

  template <typename Body>
  void each_row(const Body& body) {
    member_.phase(plan_.rows, body);
  }

  template <typename Body>
  void panels(const Packed& matrix, int grain, const Body& body) {
    member_.phase((matrix.panels() + grain - 1) / grain,
                  [&](int unit) { body(unit * grain, std::min((unit + 1) * grain, matrix.panels())); });
  }

  void linear(const Packed& matrix, int begin, int end, const Rows& input, const Output& output) {
    if (input.count <= kDecodeRows) {
      ops_.qlinear_decode(matrix, begin, end, input, output);
    } else {
      ops_.qlinear_prefill(matrix, begin, end, input, output, scratch_.unpacked);
    }
  }

  static int few(int columns) { return few_refinements(columns / kBlock); }

  void quantise(const ActivationBuffer& buffer, int row, int width, int refinements) {
    ops_.quantise(buffer.x + static_cast<size_t>(row) * static_cast<size_t>(width), width,
                  buffer.row(row, width, refinements));
  }

  void normalise(int row, const float* x, const std::vector<float>& weight, int refinements) {
    ops_.rmsnorm(x, weight.data(), config_.width, config_.epsilon,
                 buffers_.input.x + static_cast<size_t>(row) * static_cast<size_t>(config_.width));
    quantise(buffers_.input, row, config_.width, refinements);
  }

  // Queries, keys and values of every row; a unit is whole heads, so that it can rotate and store them.
  void project_heads(int layer_index, const Layer& layer) {
    const int heads_a_unit = config_.head_dim % kPanelRows == 0 ? 1 : 2;
    const int panels_a_unit = heads_a_unit * config_.head_dim / kPanelRows;
    const int q_units = (config_.heads + heads_a_unit - 1) / heads_a_unit;
    const int kv_units = (config_.kv_heads + heads_a_unit - 1) / heads_a_unit;
    const Rows input = rows(buffers_.input, few(config_.width), plan_.rows);
    const auto project = [&](const Packed& matrix, int unit, float* out, size_t stride) {
      const int begin = unit * panels_a_unit;
      linear(matrix, begin, std::min(begin + panels_a_unit, matrix.panels()), input,
             {out + begin * kPanelRows, stride, false});
    };
    const auto rotate = [&](int unit, int heads, float* out, size_t stride) {
      for (int row = 0; row < plan_.rows; ++row) {
        const int position = plan_.position(pass_, row);
        for (int head = unit * heads_a_unit; head < std::min((unit + 1) * heads_a_unit, heads); ++head) {
          ops_.rope(out + static_cast<size_t>(row) * stride + head * config_.head_dim, config_.rope_dim,
                    buffers_.rope.cosines(position), buffers_.rope.sines(position));
        }
      }
    };
    member_.phase(q_units + kv_units, [&](int unit) {
      if (unit < q_units) {
        project(layer.q, unit, buffers_.queries, buffers_.q_stride);
        rotate(unit, config_.heads, buffers_.queries, buffers_.q_stride);
        return;
      }
      const int kv_unit = unit - q_units;
      project(layer.k, kv_unit, buffers_.keys, buffers_.kv_stride);
      rotate(kv_unit, config_.kv_heads, buffers_.keys, buffers_.kv_stride);
      project(layer.v, kv_unit, buffers_.values, buffers_.kv_stride);
      store(layer_index, kv_unit * heads_a_unit, std::min((kv_unit + 1) * heads_a_unit, config_.kv_heads));
    });
  }

  void store(int layer, int begin, int end) {
    for (int row = 0; row < plan_.rows; ++row) {
      const Segment& segment = pass_.segments[static_cast<size_t>(plan_.row_segment[static_cast<size_t>(row)])];
      for (int head = begin; head < end; ++head) {
        const size_t at = static_cast<size_t>(row) * buffers_.kv_stride + static_cast<size_t>(head * config_.head_dim);
        ops_.kv_write(buffers_.keys + at, buffers_.values + at, config_.head_dim, plan_.position(pass_, row),
                      cache_.head(segment.slot, layer, head));
      }
    }
  }

  float* partial(int decode_row, int head, int block) const {
    const size_t index = static_cast<size_t>(decode_row * config_.heads + head) * static_cast<size_t>(buffers_.blocks);
    return buffers_.partials + (index + static_cast<size_t>(block)) * partial_floats(config_.head_dim);
  }

  // Where the attention of one query head goes: the input of the output projection.
  float* attended(int row, int head) const {
    return buffers_.input.x + static_cast<size_t>(row) * static_cast<size_t>(config_.q_width()) +
           static_cast<size_t>(head * config_.head_dim);
  }

  void attend(int layer) {
    member_.phase(static_cast<int>(plan_.units.size()),
                  [&](int index) { attend_unit(layer, plan_.units[static_cast<size_t>(index)]); });
  }

  void attend_unit(int layer, const AttentionUnit& unit) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    int visible[kMostQueries];
    float* outputs[kMostQueries];
    int count = 0;
    for (int row = unit.row; row < unit.row + unit.rows; ++row) {
      for (int head = unit.head; head < unit.head + unit.heads; ++head, ++count) {
        const float* query = buffers_.queries + static_cast<size_t>(row) * buffers_.q_stride + head * config_.head_dim;
        for (int i = 0; i < config_.head_dim; ++i) scratch_.queries[count * config_.head_dim + i] = query[i] * scale;
        visible[count] = plan_.position(pass_, row) + 1;
        outputs[count] = attended(row, head);
      }
    }
    const Queries queries{scratch_.queries, visible, count, config_.head_dim};
    const KvHead head = cache_.head(pass_.segments[static_cast<size_t>(unit.segment)].slot, layer, unit.kv_head);
    if (unit.block < 0) {
      ops_.attention_prefill(queries, head, outputs);
      return;
    }
    const size_t stride = static_cast<size_t>(buffers_.blocks) * partial_floats(config_.head_dim);
    const int decode_row = plan_.decode_row[static_cast<size_t>(unit.row)];
    ops_.attention_decode(queries, head, unit.block, partial(decode_row, unit.head, unit.block), stride);
  }

  void gather_attention(int row) {
    const int decode_row = plan_.decode_row[static_cast<size_t>(row)];
    if (decode_row >= 0) {
      const int blocks = plan_.position(pass_, row) / kPositionBlock + 1;
      for (int head = 0; head < config_.heads; ++head) {
        ops_.attention_fold(partial(decode_row, head, 0), blocks, config_.head_dim, attended(row, head));
      }
    }
    quantise(buffers_.input, row, config_.q_width(), few(config_.q_width()));
  }

  void add_linear(const Packed& matrix, const ActivationBuffer& buffer) {
    panels(matrix, kOutputPanels, [&](int begin, int end) {
      linear(matrix, begin, end, rows(buffer, few(matrix.columns), plan_.rows),
             {buffers_.residual + begin * kPanelRows, static_cast<size_t>(config_.width), true});
    });
  }

  void feed_forward(const Layer& layer) {
    constexpr int kOutputs = kFfnPanels * kPanelRows;
    const Rows input = rows(buffers_.input, few(config_.width), plan_.rows);
    panels(layer.gate, kFfnPanels, [&](int begin, int end) {
      linear(layer.gate, begin, end, input, {scratch_.gate, kOutputs, false});
      linear(layer.up, begin, end, input, {scratch_.up, kOutputs, false});
      const int column = begin * kPanelRows;
      for (int row = 0; row < plan_.rows; ++row) {
        ops_.silu_mul(scratch_.gate + row * kOutputs, scratch_.up + row * kOutputs, kOutputs,
                      buffers_.hidden.x + static_cast<size_t>(row) * static_cast<size_t>(config_.ffn) + column);
      }
    });
    each_row([&](int row) { quantise(buffers_.hidden, row, config_.ffn, few(config_.ffn)); });
  }

  const Config& config_;
  const Weights& weights_;
  const Cache& cache_;
  const Ops& ops_;
  const Buffers& buffers_;
  const Buffers::Scratch& scratch_;
  const Pass& pass_;
  const Plan& plan_;
  Team::Member& member_;
};

Forward::Forward(const Config& config, const Weights& weights, Cache& cache, const Ops& ops, Team& team, int slots,
                 int context)
    : config_(config),
      weights_(weights),
      cache_(cache),
      ops_(ops),
      team_(team),
      buffers_(std::make_unique<Buffers>(config, slots, context, team.size())) {}

Forward::~Forward() = default;

void Forward::run(const Pass& pass) {
  const Plan plan(config_, pass);
  team_.run([&](Team::Member& member) { Worker(*this, pass, plan, member).run(); });
}

}  // namespace assay
