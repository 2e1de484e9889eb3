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

  VectorPlan vector(const std::string& name, int count) {
    const Tensor& tensor = take(name, count, 1);
    if (tensor.type != TensorType::f32) {
      unsupported("tensor " + quoted(name) + " is " + traits(tensor.type).name + "; norms must be F32");
    }
    const VectorPlan vector{&tensor, count};
    weights_.bytes_ += aligned_bytes(vector.bytes());
    return vector;
  }

  // Matrices of `columns` columns, each a name and its rows.
  StackPlan stack(const std::vector<std::pair<std::string, int>>& names, int columns) {
    StackPlan stack;
    for (const auto& [name, rows] : names) {
      const Tensor& tensor = take(name, columns, rows);
      const MatrixPlan* last = stack.parts.empty() ? nullptr : &stack.parts.back();
      if (last == nullptr || last->type != tensor.type || last->factor != tensor.factor) {
        stack.parts.push_back({tensor.type, 0, columns, {}, tensor.factor});
      }
      stack.parts.back().tensors.push_back(&tensor);
      stack.parts.back().rows += rows;
      stack.rows += rows;
    }
    for (const MatrixPlan& part : stack.parts) {
      weights_.bytes_ += aligned_bytes(part.bytes());
      weights_.bytes_per_step_ += part.bytes();
      weights_.has_floats_ |= is_float(part.type);
    }
    return stack;
  }

  MatrixPlan single(const std::string& name, int columns, int rows) { return stack({{name, rows}}, columns).parts[0]; }

  void refuse_unused() const {
    for (const Tensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) == 0) {
        unsupported("tensor " + quoted(tensor.name) + " has no place in the architecture as it is served");
      }
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

DeviceWeights::DeviceWeights(const ModelFile& file, const Config& config) {
  if (static_cast<size_t>(config.layers) > file.tensors().size()) {
    bad_file("the metadata claims " + std::to_string(config.layers) + " layers, more than the file has tensors");
  }
  if (config.width > kMostColumns || config.ffn > kMostColumns || config.q_width() > kMostColumns) {
    unsupported("rows of more than " + std::to_string(kMostColumns) + " values");
  }
  Finder find(file, *this);
  for (int index = 0; index < config.layers; ++index) {
    const std::string block = "blk." + std::to_string(index) + ".";
    LayerTensors layer;
    layer.attention_norm = find.vector(block + "attn_norm.weight", config.width);
    layer.ffn_norm = find.vector(block + "ffn_norm.weight", config.width);
    layer.qkv = find.stack({{block + "attn_q.weight", config.q_width()},
                            {block + "attn_k.weight", config.kv_width()},
                            {block + "attn_v.weight", config.kv_width()}},
                           config.width);
    layer.gate_up = find.stack({{block + "ffn_gate.weight", config.ffn}, {block + "ffn_up.weight", config.ffn}},
                               config.width);
    layer.output = find.stack({{block + "attn_output.weight", config.width}}, config.q_width());
    layer.down = find.stack({{block + "ffn_down.weight", config.width}}, config.ffn);
    layers_.push_back(std::move(layer));
  }
  output_norm_ = find.vector("output_norm.weight", config.width);
  tied_ = !find.has("output.weight");
  if (!tied_) head_ = find.single("output.weight", config.width, config.vocabulary);
  const uint64_t without_embedding = bytes_per_step_;
  embedding_ = find.single("token_embd.weight", config.width, config.vocabulary);
  if (!tied_) bytes_per_step_ = without_embedding;
  find.refuse_unused();
}

}  // namespace assay
