#include "weights.cuh"

#include <set>

namespace assay::cuda {

// Finds tensors, copies them to the device as they lie in the file and packs them there.
class Weights::Loader {
 public:
  Loader(const ModelFile& file, const Stream& stream, Weights& weights) : file_(file), stream_(stream), weights_(weights) {
    size_t largest = 0;
    for (const Tensor& tensor : file.tensors()) largest = std::max(largest, static_cast<size_t>(tensor.byte_size));
    staged_ = DeviceArray<uint8_t>(largest);
  }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  const float* norm(const std::string& name, int width) {
    const Tensor& tensor = take(name, width, 1);
    if (tensor.type != TensorType::f32) {
      unsupported("tensor " + quoted(name) + " is " + traits(tensor.type).name + "; norms must be F32");
    }
    weights_.norms_.emplace_back(static_cast<size_t>(width));
    float* kept = weights_.norms_.back().data();
    stream_.upload(reinterpret_cast<uint8_t*>(kept), tensor.data, tensor.byte_size);
    return kept;
  }

  // Matrices of `columns` columns, each a name and its rows, one below the other.
  Stack stack(const std::vector<std::pair<std::string, int>>& names, int columns) {
    Stack stack;
    std::vector<const Tensor*> run;
    int rows = 0;
    const auto close = [&] {
      if (!run.empty()) stack.parts.push_back(matrix(run, rows, columns));
      stack.rows += rows;
      run.clear();
      rows = 0;
    };
    for (const auto& [name, count] : names) {
      const Tensor& tensor = take(name, columns, count);
      if (!run.empty() && run.back()->type != tensor.type) close();
      run.push_back(&tensor);
      rows += count;
    }
    close();
    return stack;
  }

  Matrix single(const std::string& name, int columns, int rows) { return stack({{name, rows}}, columns).parts[0]; }

  void refuse_unused() const {
    for (const Tensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) == 0) {
        unsupported("tensor " + quoted(tensor.name) + " has no place in the architecture as it is served");
      }
    }
  }

  uint64_t bytes() const { return bytes_; }

 private:
  const Tensor& take(const std::string& name, int columns, int rows) {
    const Tensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) bad_file("tensor '" + name + "' is missing");
    if (tensor->columns != static_cast<uint64_t>(columns) || tensor->rows != static_cast<uint64_t>(rows)) {
      bad_file("tensor '" + name + "' is " + std::to_string(tensor->columns) + " x " + std::to_string(tensor->rows) +
               ", the metadata asks for " + std::to_string(columns) + " x " + std::to_string(rows));
    }
    used_.insert(name);
    return *tensor;
  }

  Matrix matrix(const std::vector<const Tensor*>& tensors, int rows, int columns) {
    const TensorType type = tensors[0]->type;
    weights_.matrices_.emplace_back(packed_bytes(type, rows, columns));
    const DeviceArray<uint8_t>& packed = weights_.matrices_.back();
    stream_.zero(packed.data(), packed.bytes());
    int first = 0;
    for (const Tensor* tensor : tensors) {
      stream_.upload(staged_.data(), tensor->data, static_cast<size_t>(tensor->byte_size));
      pack(type, staged_.data(), static_cast<int>(tensor->rows), columns, first, packed.data(), stream_.get());
      first += static_cast<int>(tensor->rows);
    }
    bytes_ += packed.bytes();
    weights_.has_floats_ |= type == TensorType::f32 || type == TensorType::f16;
    return {type, rows, columns, packed.data()};
  }

  const ModelFile& file_;
  const Stream& stream_;
  Weights& weights_;
  DeviceArray<uint8_t> staged_;
  std::set<std::string> used_;
  uint64_t bytes_ = 0;
};

Weights::Weights(const ModelFile& file, const Config& config, const Stream& stream) {
  if (static_cast<size_t>(config.layers) > file.tensors().size()) {
    bad_file("the metadata claims " + std::to_string(config.layers) + " layers, more than the file has tensors");
  }
  if (config.width > kMostColumns || config.ffn > kMostColumns || config.q_width() > kMostColumns) {
    unsupported("rows of more than " + std::to_string(kMostColumns) + " values");
  }
  Loader loader(file, stream, *this);
  for (int index = 0; index < config.layers; ++index) {
    const std::string block = "blk." + std::to_string(index) + ".";
    const float* attention_norm = loader.norm(block + "attn_norm.weight", config.width);
    const float* ffn_norm = loader.norm(block + "ffn_norm.weight", config.width);
    Stack qkv = loader.stack({{block + "attn_q.weight", config.q_width()},
                              {block + "attn_k.weight", config.kv_width()},
                              {block + "attn_v.weight", config.kv_width()}},
                             config.width);
    Stack gate_up = loader.stack({{block + "ffn_gate.weight", config.ffn}, {block + "ffn_up.weight", config.ffn}},
                                 config.width);
    Stack output = loader.stack({{block + "attn_output.weight", config.width}}, config.q_width());
    Stack down = loader.stack({{block + "ffn_down.weight", config.width}}, config.ffn);
    layers_.push_back({attention_norm, ffn_norm, std::move(qkv), std::move(gate_up), std::move(output),
                       std::move(down)});
  }
  output_norm_ = loader.norm("output_norm.weight", config.width);
  const bool untied = loader.has("output.weight");
  if (untied) head_ = loader.single("output.weight", config.width, config.vocabulary);
  bytes_per_step_ = loader.bytes();
  embedding_ = loader.single("token_embd.weight", config.width, config.vocabulary);
  if (!untied) {
    head_ = embedding_;
    bytes_per_step_ = loader.bytes();
  }
  loader.refuse_unused();
  stream.wait();  // the file may go now
}

}  // namespace assay::cuda
