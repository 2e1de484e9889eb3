// Full attention of a pass (pass_worker.h): queries, keys and values, their products, and the way back.
#include <algorithm>
#include <cmath>

#include "pass_worker.h"

namespace assay {
namespace {

constexpr int kOwnPartials = 48;  // partial results that every thread folds for itself rather than in a phase

}  // namespace

// Queries, keys and values of every row; a unit is whole heads, so that it can norm, rotate and store them.
void PassWorker::project_heads(int index, const Layer& layer) {
  const int heads_a_unit = config_.head_dim % kPanelRows == 0 ? 1 : 2;
  const int q_units = (config_.heads + heads_a_unit - 1) / heads_a_unit;
  const int kv_units = (config_.kv_heads + heads_a_unit - 1) / heads_a_unit;
  const auto prepare = [&](const ActivationBuffer& buffer, int row) {
    normalise(buffer, row, residual(row), layer.attention_norm, few(config_.width));
  };
  const auto project = [&](const ActivationBuffer& buffer, const Packed& matrix, int unit, int head_rows, float* out,
                           size_t stride) {
    const int panels_a_unit = heads_a_unit * head_rows / kPanelRows;
    const int begin = unit * panels_a_unit;
    linear(matrix, begin, std::min(begin + panels_a_unit, matrix.panels()),
           buffer.rows(few(config_.width), plan_.rows), {out + begin * kPanelRows, stride, false});
  };
  prepared_phase(plan_.rows, buffers_.input, prepare, q_units + kv_units,
                 [&](const ActivationBuffer& buffer, int unit) {
                   const bool query = unit < q_units;
                   const int part = query ? unit : unit - q_units;
                   const int begin = part * heads_a_unit;
                   const int end = std::min(begin + heads_a_unit, query ? config_.heads : config_.kv_heads);
                   if (query) {
                     project(buffer, layer.q, part, query_rows(), buffers_.queries, buffers_.q_stride);
                     turn(begin, end, layer.q_norm, query_rows(), buffers_.queries, buffers_.q_stride);
                     scale_queries(begin, end);
                     return;
                   }
                   project(buffer, layer.k, part, config_.head_dim, buffers_.keys, buffers_.kv_stride);
                   turn(begin, end, layer.k_norm, config_.head_dim, buffers_.keys, buffers_.kv_stride);
                   project(buffer, layer.v, part, config_.head_dim, buffers_.values, buffers_.kv_stride);
                   store(index, begin, end);
                 });
}

// Norms heads [begin, end) of every row, where the model does, and rotates them; a head begins each `head_rows` values.
void PassWorker::turn(int begin, int end, const std::vector<float>& norm, int head_rows, float* out, size_t stride) {
  const auto rotate = config_.rope_style == RopeStyle::pairs ? ops_.rope : ops_.rope_halves;
  for (int row = 0; row < plan_.rows; ++row) {
    const int position = plan_.position(row);
    for (int head = begin; head < end; ++head) {
      float* at = out + static_cast<size_t>(row) * stride + head * head_rows;
      if (config_.head_norm) ops_.rmsnorm(at, norm.data(), config_.head_dim, config_.epsilon, at);
      rotate(at, config_.rope_dim, buffers_.rope.cosines(position), buffers_.rope.sines(position));
    }
  }
}

// Makes of every row's heads [begin, end) the queries that attention is given.
void PassWorker::scale_queries(int begin, int end) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  for (int row = 0; row < plan_.rows; ++row) {
    for (int head = begin; head < end; ++head) {
      float* query = buffers_.queries + static_cast<size_t>(row) * buffers_.q_stride + head * query_rows();
      for (int i = 0; i < config_.head_dim; ++i) query[i] *= scale;
      if (cache_.type() == KvType::q4) mix_head(query, config_.head_dim);
    }
  }
}

void PassWorker::store(int index, int begin, int end) {
  for (int row = 0; row < plan_.rows; ++row) {
    const int position = plan_.position(row);
    uint8_t* block =
        cache_.table(pass_.segments[static_cast<size_t>(plan_.segment(row))].slot)[position / kPositionBlock];
    for (int head = begin; head < end; ++head) {
      const size_t at = static_cast<size_t>(row) * buffers_.kv_stride + static_cast<size_t>(head * config_.head_dim);
      ops_.kv_write(buffers_.keys + at, buffers_.values + at, config_.head_dim, cache_.type(),
                    position % kPositionBlock, block + cache_.offset(index, head));
    }
  }
}

void PassWorker::attend(int index) {
  member_.phase(static_cast<int>(plan_.units.size()), [&](int unit) { attend_unit(index, unit); });
}

// Where the prefill form puts the attention of one query head.
float* PassWorker::attended(int row, int head) const {
  return buffers_.input.values(row, config_.q_width()) + head * config_.head_dim;
}

// What a unit of the decode form reads, or nullptr for the others.
const uint8_t* PassWorker::read_by(int index, size_t at) const {
  if (at >= plan_.units.size() || plan_.units[at].block < 0) return nullptr;
  const AttentionUnit& unit = plan_.units[at];
  uint8_t* const* table = cache_.table(pass_.segments[static_cast<size_t>(unit.segment)].slot);
  return table[unit.block] + cache_.offset(index, unit.kv_head);
}

void PassWorker::attend_unit(int index, int unit_index) {
  const size_t at = static_cast<size_t>(unit_index);
  const AttentionUnit& unit = plan_.units[at];
  int visible[kMostQueries];
  float* outputs[kMostQueries];
  int count = 0;
  for (int row = unit.row; row < unit.row + unit.rows; ++row) {
    for (int head = unit.head; head < unit.head + unit.heads; ++head, ++count) {
      const float* query = buffers_.queries + static_cast<size_t>(row) * buffers_.q_stride + head * query_rows();
      std::copy_n(query, config_.head_dim, scratch_.queries + count * config_.head_dim);
      visible[count] = plan_.position(row) + 1;
      outputs[count] = attended(row, head);
    }
  }
  const Queries queries{scratch_.queries, visible, count, config_.head_dim, cache_.type()};
  uint8_t* const* table = cache_.table(pass_.segments[static_cast<size_t>(unit.segment)].slot);
  if (unit.block < 0) {
    const size_t offset = cache_.offset(index, unit.kv_head);
    scratch_.blocks.clear();
    for (int first = 0; first < visible[count - 1]; first += kPositionBlock) {
      scratch_.blocks.push_back(table[first / kPositionBlock] + offset);
    }
    ops_.attention_prefill(queries, scratch_.blocks.data(), outputs);
    return;
  }
  const size_t stride = static_cast<size_t>(buffers_.blocks) * partial_floats(config_.head_dim);
  const int decode_row = plan_.decode_row[static_cast<size_t>(unit.row)];
  ops_.attention_decode(queries, read_by(index, at), read_by(index, at + 1), unit.block * kPositionBlock,
                        buffers_.partial(config_, decode_row, unit.head, unit.block), stride);
}

// The whole attention of some heads of a row, folded from partial results where it decodes, to their places
// in out[q_width].
void PassWorker::fold(int row, int first, int heads, float* out) {
  const int decode_row = plan_.decode_row[static_cast<size_t>(row)];
  if (decode_row < 0) return;  // the prefill form has written it
  const int blocks = plan_.position(row) / kPositionBlock + 1;
  for (int head = first; head < first + heads; ++head) {
    ops_.attention_fold(buffers_.partial(config_, decode_row, head, 0), blocks, config_.head_dim,
                        out + head * config_.head_dim);
  }
}

// Adds what was attended, times its gate where there is one, to the residual.
void PassWorker::add_attended(const Layer& layer) {
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
    if (config_.gated) {
      const float* query = buffers_.queries + static_cast<size_t>(row) * buffers_.q_stride;
      for (int head = 0; head < config_.heads; ++head) {
        ops_.sigmoid_mul(query + head * query_rows() + config_.head_dim, config_.head_dim, x + head * config_.head_dim);
      }
    }
    quantise(buffer, row, x, width, few(width));
  };
  add_linear(layer.output, buffers_.input, prepare);
}

}  // namespace assay
