// A pass from embedding to logits: the layers in order, the feed-forward part, the output head.
#include "forward.h"

#include <algorithm>

#include "pass_worker.h"

namespace assay {
namespace {

constexpr int kHeadPanels = 4;  // panels of the output head in a unit

}  // namespace

void PassWorker::run() {
  member_.phase(plan_.rows, [&](int row) {
    ops_.embed(weights_.embedding(), pass_.tokens[static_cast<size_t>(row)], residual(row));
  });
  int attention = 0, delta = 0;
  for (const Layer& layer : weights_.layers()) {
    if (layer.kind == LayerKind::attention) {
      project_heads(attention, layer);
      attend(attention++);
      add_attended(layer);
    } else {
      project_delta(layer);
      convolve(delta, layer);
      recur(delta++, layer);
      add_delta(layer);
    }
    feed_forward(layer);
    add_hidden(layer);
  }
  if (!pass_.wanted.empty()) predict();
}

void PassWorker::feed_forward(const Layer& layer) {
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

void PassWorker::add_hidden(const Layer& layer) {
  add_linear(layer.down, buffers_.hidden, [&](const ActivationBuffer& buffer, int row) {
    const float* x = buffers_.hidden.values(row, config_.ffn);
    if (!layer.down.quantised() && buffer.x != buffers_.hidden.x) {
      std::copy_n(x, config_.ffn, buffer.values(row, config_.ffn));
    }
    quantise(buffer, row, x, config_.ffn, few(config_.ffn));
  });
}

// Logits and greedy ids of the wanted rows.
void PassWorker::predict() {
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

Forward::Forward(const Config& config, const Weights& weights, const Cache& cache, const DeltaCache& delta_cache,
                 const Ops& ops, Team& team, int slots, int context)
    : config_(config),
      weights_(weights),
      cache_(cache),
      delta_cache_(delta_cache),
      ops_(ops),
      team_(team),
      buffers_(config, slots, context, team.size()) {}

void Forward::run(const Pass& pass) {
  const PassPlan plan(config_, pass, ops_.most_queries);
  team_.run([&](Team::Member& member) { PassWorker(*this, pass, plan, member).run(); });
}

}  // namespace assay
