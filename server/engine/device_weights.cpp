#include "device_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include "error.h"
#include "row_source.h"
#include "workspace.h"

namespace assay {

// Finds tensors by name and sums up what they take.
class DeviceWeights::Finder {
 public:
  Finder(const ModelFile& file, DeviceWeights& weights) : file_(file), weights_(weights) {}

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // The values of a tensor that is no matrix, `rows` times `columns` of them.
  VectorPlan vector(const std::string& name, int columns, VectorKind kind = VectorKind::plain, int rows = 1) {
    const Tensor& tensor = take(name, columns, rows);
    if (tensor.type != TensorType::f32 && tensor.type != TensorType::f16 && tensor.type != TensorType::bf16) {
      unsupported("tensor " + quoted(name) + " is " + traits(tensor.type).name +
                  "; norms and other vectors must be F32, F16 or BF16");
    }
    const VectorPlan vector{&tensor, columns * rows, kind};
    weights_.piece_bytes_ = std::max(weights_.piece_bytes_, vector.bytes());
    weights_.bytes_ += aligned_bytes(vector.bytes());
    return vector;
  }

  // Matrices of `columns` columns, each a name and its rows.
  StackPlan stack(const std::vector<std::pair<std::string, int>>& names, int columns) {
    std::vector<RowRun> runs;
    for (const auto& [name, rows] : names) runs.push_back({&take(name, columns, rows), 0, rows});
    return stacked(runs, columns);
  }

  // The gates of all heads, then their queries, out of a matrix that has a head's query and gate in turn; then keys
  // and values.
  StackPlan gated_stack(const std::string& block, const Config& config) {
    const Tensor& queries = take(block + "attn_q.weight", config.width, config.q_rows());
    const int width = config.head_dim;
    std::vector<RowRun> runs;
    for (int part = 1; part >= 0; --part) {
      for (int head = 0; head < config.heads; ++head) runs.push_back({&queries, (2 * head + part) * width, width});
    }
    for (const char* name : {"attn_k.weight", "attn_v.weight"}) {
      runs.push_back({&take(block + name, config.width, config.kv_width()), 0, config.kv_width()});
    }
    return stacked(runs, config.width);
  }

  StackPlan stacked(const std::vector<RowRun>& runs, int columns) {
    StackPlan stack;
    for (const RowRun& run : runs) {
      const Tensor& tensor = *run.tensor;
      const MatrixPlan* last = stack.parts.empty() ? nullptr : &stack.parts.back();
      if (last == nullptr || last->type != tensor.type || last->factor != tensor.factor) {
        stack.parts.push_back({tensor.type, 0, columns, {}, tensor.factor});
      }
      stack.parts.back().runs.push_back(run);
      stack.parts.back().rows += run.count;
      stack.rows += run.count;
    }
    for (const MatrixPlan& part : stack.parts) {
      weights_.bytes_ += aligned_bytes(part.bytes());
      weights_.bytes_per_step_ += part.bytes();
      weights_.has_floats_ |= is_float(part.type);
    }
    return stack;
  }

  MatrixPlan single(const std::string& name, int columns, int rows) { return stack({{name, rows}}, columns).parts[0]; }

  // Tensors of the layers [first, first + count) may be there and are not read.
  void refuse_unused(int first, int count) const {
    for (const Tensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) != 0) continue;
      bool skipped = false;
      for (int layer = first; layer < first + count; ++layer) {
        skipped = skipped || tensor.name.rfind("blk." + std::to_string(layer) + ".", 0) == 0;
      }
      if (!skipped) unsupported("tensor " + quoted(tensor.name) + " has no place in the architecture as it is served");
    }
  }

 private:
  const Tensor& take(const std::string& name, int columns, int rows) {
    const Tensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) bad_file("tensor '" + name + "' is missing");
    if (tensor->columns != static_cast<uint64_t>(columns) || tensor->rows != static_cast<uint64_t>(rows)) {
      bad_file("tensor '" + name + "' is " + std::to_string(tensor->columns) + " x " + std::to_string(tensor->rows) +
               ", the metadata asks for " + std::to_string(columns) + " x " + std::to_string(rows));
    }
    used_.insert(name);
    const size_t piece = row_bytes(*tensor) * static_cast<size_t>(rows_in_piece(*tensor));
    weights_.file_bytes_ += tensor->byte_size;
    weights_.piece_bytes_ = std::max(weights_.piece_bytes_, piece);
    return *tensor;
  }

  const ModelFile& file_;
  DeviceWeights& weights_;
  std::set<std::string> used_;
};

void require_columns(const Config& config) {
  const int widest = std::max({config.width, config.ffn, config.q_width(), config.delta.value_width()});
  if (widest > kMostColumns) unsupported("rows of more than " + std::to_string(kMostColumns) + " values");
}

DeviceWeights::DeviceWeights(const ModelFile& file, const Config& config) {
  if (static_cast<size_t>(config.layers) > file.tensors().size()) {
    bad_file("the metadata claims " + std::to_string(config.layers) + " layers, more than the file has tensors");
  }
  Finder find(file, *this);
  const DeltaShape& delta = config.delta;
  const bool qwen35 = config.architecture == Architecture::qwen35;
  const VectorKind norm = VectorKind::norm;
  for (int index = 0; index < config.layers; ++index) {
    const std::string block = "blk." + std::to_string(index) + ".";
    LayerTensors layer;
    layer.kind = config.kinds[static_cast<size_t>(index)];
    layer.attention_norm = find.vector(block + "attn_norm.weight", config.width, norm);
    layer.ffn_norm =
        find.vector(block + (qwen35 ? "post_attention_norm.weight" : "ffn_norm.weight"), config.width, norm);
    if (layer.kind == LayerKind::attention) {
      layer.input = config.gated ? find.gated_stack(block, config)
                                 : find.stack({{block + "attn_q.weight", config.q_width()},
                                               {block + "attn_k.weight", config.kv_width()},
                                               {block + "attn_v.weight", config.kv_width()}},
                                              config.width);
      if (config.head_norm) {
        layer.query_norm = find.vector(block + "attn_q_norm.weight", config.head_dim, norm);
        layer.key_norm = find.vector(block + "attn_k_norm.weight", config.head_dim, norm);
      }
      layer.output = find.stack({{block + "attn_output.weight", config.width}}, config.q_width());
    } else {
      layer.input = find.stack({{block + "attn_qkv.weight", delta.width()},
                                {block + "attn_gate.weight", delta.value_width()},
                                {block + "ssm_alpha.weight", delta.value_heads},
                                {block + "ssm_beta.weight", delta.value_heads}},
                               config.width);
      layer.conv = find.vector(block + "ssm_conv1d.weight", delta.conv, VectorKind::conv, delta.width());
      layer.decay = find.vector(block + "ssm_a", delta.value_heads, VectorKind::decay);
      layer.dt = find.vector(block + "ssm_dt.bias", delta.value_heads);
      layer.value_norm = find.vector(block + "ssm_norm.weight", delta.value_dim);
      layer.output = find.stack({{block + "ssm_out.weight", config.width}}, delta.value_width());
    }
    layer.gate_up = find.stack({{block + "ffn_gate.weight", config.ffn}, {block + "ffn_up.weight", config.ffn}},
                               config.width);
    layer.down = find.stack({{block + "ffn_down.weight", config.width}}, config.ffn);
    layers_.push_back(std::move(layer));
  }
  output_norm_ = find.vector("output_norm.weight", config.width, norm);
  tied_ = !find.has(kHeadTensor);
  if (!tied_) head_ = find.single(kHeadTensor, config.width, config.vocabulary);
  const uint64_t without_embedding = bytes_per_step_;
  embedding_ = find.single("token_embd.weight", config.width, config.vocabulary);
  if (!tied_) bytes_per_step_ = without_embedding;
  find.refuse_unused(config.layers, config.skipped);
}

}  // namespace assay
