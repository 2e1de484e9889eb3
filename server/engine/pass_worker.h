// One thread's way through a pass (forward.h): what a layer does, and what its parts share.
//
// A layer adds the output of its attention (attention_layer.cpp) or of its delta rule
// (delta_layer.cpp), then that of its feed-forward part (forward.cpp), to the residual.
#pragma once

#include "forward.h"

namespace assay {

class PassWorker {
 public:
  PassWorker(Forward& forward, const Pass& pass, const PassPlan& plan, Team::Member& member)
      : config_(forward.config_),
        weights_(forward.weights_),
        cache_(forward.cache_),
        delta_cache_(forward.delta_cache_),
        ops_(forward.ops_),
        buffers_(forward.buffers_),
        scratch_(forward.buffers_.scratch[static_cast<size_t>(member.index())]),
        pass_(pass),
        plan_(plan),
        member_(member) {}

  void run();

 private:
  static constexpr int kOutputPanels = 1;

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

  // Panels [begin, end) of a matrix times rows that are prepared.
  void linear(const Packed& matrix, int begin, int end, const Rows& input, const Output& output) {
    if (input.count <= ops_.decode_rows) {
      ops_.qlinear_decode(matrix, begin, end, input, output);
    } else {
      ops_.qlinear_prefill(matrix, begin, end, input, output, scratch_.unpacked);
    }
  }

  // The norm of `x` and its int8 form, as row `row` of the buffer.
  void normalise(const ActivationBuffer& buffer, int row, const float* x, const std::vector<float>& weight,
                 int refinements) {
    ops_.rmsnorm(x, weight.data(), config_.width, config_.epsilon, buffer.values(row, config_.width));
    quantise(buffer, row, buffer.values(row, config_.width), config_.width, refinements);
  }

  void quantise(const ActivationBuffer& buffer, int row, const float* x, int width, int refinements) {
    ops_.quantise(x, width, buffer.row(row, width, refinements));
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

  // Attention (attention_layer.cpp). `index` counts the layers of attention alone.
  void project_heads(int index, const Layer& layer);
  void turn(int begin, int end, const std::vector<float>& norm, int head_rows, float* out, size_t stride);
  void scale_queries(int begin, int end);
  void store(int index, int begin, int end);
  void attend(int index);
  void attend_unit(int index, int unit);
  const uint8_t* read_by(int index, size_t unit) const;
  float* attended(int row, int head) const;
  void fold(int row, int first, int heads, float* out);
  void add_attended(const Layer& layer);

  // The gated delta rule (delta_layer.cpp). `index` counts its layers alone.
  void project_delta(const Layer& layer);
  const float* delta_row(int index, const Segment& segment, int position) const;
  void convolve(int index, const Layer& layer);
  void recur(int index, const Layer& layer);
  void recur_head(int index, const Segment& segment, int key_head);
  void norm_heads(const Layer& layer, const Segment& segment, int key_head);
  void keep_rows(int index, const Segment& segment, int key_head);
  float* delta_out(int row) const;
  void add_delta(const Layer& layer);

  void feed_forward(const Layer& layer);
  void add_hidden(const Layer& layer);
  void predict();

  int query_rows() const { return config_.gated ? 2 * config_.head_dim : config_.head_dim; }  // of attn_q, a head

  const Config& config_;
  const Weights& weights_;
  const Cache& cache_;
  const DeltaCache& delta_cache_;
  const Ops& ops_;
  const PassBuffers& buffers_;
  PassBuffers::Scratch& scratch_;
  const Pass& pass_;
  const PassPlan& plan_;
  Team::Member& member_;
};

}  // namespace assay
