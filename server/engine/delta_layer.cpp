// The gated delta rule of a pass (pass_worker.h): projections, convolution, the rule itself, and the way back.
#include <algorithm>

#include "pass_worker.h"

namespace assay {
namespace {

constexpr int kRowPanels = 4;  // panels of a row or its gate in a unit

int units_of(const Packed& matrix) { return (matrix.panels() + kRowPanels - 1) / kRowPanels; }

}  // namespace

// Each row's queries, keys and values before the convolution, what gates them, and each value head's two numbers.
void PassWorker::project_delta(const Layer& layer) {
  const auto prepare = [&](const ActivationBuffer& buffer, int row) {
    normalise(buffer, row, residual(row), layer.attention_norm, few(config_.width));
  };
  struct Part {
    const Packed& matrix;
    float* out;
    size_t stride;
  };
  const Part parts[] = {{layer.qkv, buffers_.delta.rows, buffers_.delta.row_stride},
                        {layer.z, buffers_.delta.z, buffers_.delta.z_stride},
                        {layer.alpha, buffers_.delta.alpha, buffers_.delta.gate_stride},
                        {layer.beta, buffers_.delta.beta, buffers_.delta.gate_stride}};
  int units = 0;
  for (const Part& part : parts) units += units_of(part.matrix);
  prepared_phase(plan_.rows, buffers_.input, prepare, units, [&](const ActivationBuffer& buffer, int unit) {
    const Part* part = parts;
    for (; unit >= units_of(part->matrix); ++part) unit -= units_of(part->matrix);
    const int begin = unit * kRowPanels;
    linear(part->matrix, begin, std::min(begin + kRowPanels, part->matrix.panels()),
           buffer.rows(few(config_.width), plan_.rows), {part->out + begin * kPanelRows, part->stride, false});
  });
}

// The row of a position of a segment before the convolution: of this pass, of the ring, or 0 before the sequence.
const float* PassWorker::delta_row(int index, const Segment& segment, int position) const {
  if (position < 0) return buffers_.delta.zeros;
  if (position < segment.position) return delta_cache_.row(segment.slot, index, position);
  const size_t row = static_cast<size_t>(segment.first + position - segment.position);
  return buffers_.delta.rows + row * buffers_.delta.row_stride;
}

// Convolves every row and norms its queries and keys; a unit is one key head of a row and an equal share of the values.
void PassWorker::convolve(int index, const Layer& layer) {
  const DeltaShape& delta = config_.delta;
  const int share = delta.value_width() / delta.key_heads;
  const size_t channels = static_cast<size_t>(delta.width());
  member_.phase(plan_.rows * delta.key_heads, [&](int unit) {
    const int row = unit / delta.key_heads, key_head = unit % delta.key_heads;
    const Segment& segment = pass_.segments[static_cast<size_t>(plan_.segment(row))];
    float* out = buffers_.delta.convolved + static_cast<size_t>(row) * buffers_.delta.row_stride;
    const auto part = [&](int first, int count) {
      const float* taps[kMostConv];
      for (int tap = 0; tap < delta.conv; ++tap) {
        taps[tap] = delta_row(index, segment, plan_.position(row) - delta.conv + 1 + tap) + first;
      }
      ops_.conv1d(taps, layer.conv.data() + first, channels, delta.conv, count, out + first);
    };
    const int query = key_head * delta.key_dim, key = delta.key_width() + query;
    const float epsilon = kDeltaEpsilon / static_cast<float>(delta.key_dim);
    part(query, delta.key_dim);
    ops_.rmsnorm(out + query, buffers_.delta.query_norm, delta.key_dim, epsilon, out + query);
    part(key, delta.key_dim);
    ops_.rmsnorm(out + key, buffers_.delta.key_norm, delta.key_dim, epsilon, out + key);
    part(2 * delta.key_width() + key_head * share, share);
    if (key_head == 0) {
      const size_t at = static_cast<size_t>(row) * buffers_.delta.gate_stride;
      ops_.delta_gates(buffers_.delta.alpha + at, buffers_.delta.beta + at, layer.decay.data(), layer.step.data(),
                       delta.value_heads, buffers_.delta.decay + at, buffers_.delta.learned + at);
    }
  });
}

// The rule over each segment; a unit is one key head with its value heads, which nobody else reads or writes.
void PassWorker::recur(int index, const Layer& layer) {
  const int key_heads = config_.delta.key_heads;
  member_.phase(static_cast<int>(pass_.segments.size()) * key_heads, [&](int unit) {
    const Segment& segment = pass_.segments[static_cast<size_t>(unit / key_heads)];
    recur_head(index, segment, unit % key_heads);
    norm_heads(layer, segment, unit % key_heads);
    keep_rows(index, segment, unit % key_heads);
  });
}

void PassWorker::recur_head(int index, const Segment& segment, int key_head) {
  const DeltaShape& delta = config_.delta;
  const DeltaBuffers& own = buffers_.delta;
  const size_t row = static_cast<size_t>(segment.first);
  const float* convolved = own.convolved + row * own.row_stride;
  const float* query = convolved + key_head * delta.key_dim;
  const DeltaRows rows{query, query + delta.key_width(), convolved + 2 * delta.key_width(),
                       own.decay + row * own.gate_stride, own.learned + row * own.gate_stride,
                       delta_out(segment.first), own.row_stride, own.gate_stride,
                       static_cast<size_t>(delta.value_width()), segment.count, 0, config_.first_value_head(key_head),
                       config_.value_head_step()};
  advance_delta(ops_, rows, segment.position, delta_cache_.span(segment.slot).base,
                delta_cache_.chunk(segment.slot, index, key_head));
}

// Norms what each value head of a key head answers, times its gate.
void PassWorker::norm_heads(const Layer& layer, const Segment& segment, int key_head) {
  const DeltaShape& delta = config_.delta;
  for (int row = segment.first; row < segment.first + segment.count; ++row) {
    for (int member = 0; member < delta.group(); ++member) {
      const int at = (config_.first_value_head(key_head) + member * config_.value_head_step()) * delta.value_dim;
      float* x = delta_out(row) + at;
      ops_.rmsnorm(x, layer.delta_norm.data(), delta.value_dim, config_.epsilon, x);
      ops_.silu_mul(buffers_.delta.z + static_cast<size_t>(row) * buffers_.delta.z_stride + at, x, delta.value_dim, x);
    }
  }
}

// Puts a key head's share of the segment's last rows into the ring.
void PassWorker::keep_rows(int index, const Segment& segment, int key_head) {
  const DeltaShape& delta = config_.delta;
  const int share = delta.value_width() / delta.key_heads;
  const int parts[][2] = {{key_head * delta.key_dim, delta.key_dim},
                          {delta.key_width() + key_head * delta.key_dim, delta.key_dim},
                          {2 * delta.key_width() + key_head * share, share}};
  const int end = segment.position + segment.count;
  for (int position = std::max(segment.position, end - kept_rows(delta.conv)); position < end; ++position) {
    const float* row = delta_row(index, segment, position);
    float* kept = delta_cache_.row(segment.slot, index, position);
    for (const auto& [first, count] : parts) std::copy_n(row + first, count, kept + first);
  }
}

float* PassWorker::delta_out(int row) const { return buffers_.input.values(row, config_.delta.value_width()); }

void PassWorker::add_delta(const Layer& layer) {
  const int width = config_.delta.value_width();
  add_linear(layer.output, buffers_.input, [&](const ActivationBuffer& buffer, int row) {
    float* x = buffer.values(row, width);
    if (x != delta_out(row)) std::copy_n(delta_out(row), width, x);
    quantise(buffer, row, x, width, few(width));
  });
}

}  // namespace assay
