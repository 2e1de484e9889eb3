#include "weights.h"

#include <set>
#include <string>

#include "error.h"
#include "row_source.h"
#include "vectors.h"

namespace assay {
namespace {

constexpr int kInterleavedPanels = 2;  // of gate, then as many of up

struct Source {
  const Tensor* tensor;
  Packed* packed;
  size_t offset;  // in the arena
};

// Plans the arena in the order of use, then fills it.
class Packer {
 public:
  Packer(const ModelFile& file, const Config& config) : file_(file), config_(config) {}

  std::vector<float> norm(const std::string& name, int width) { return read_norm(take(name, width, 1), config_); }
  std::vector<float> vector(const std::string& name, int width) { return read_vector(take(name, width, 1)); }
  std::vector<float> decay(const std::string& name, int heads) { return read_decay(take(name, heads, 1), config_); }
  std::vector<float> conv(const std::string& name, int taps, int channels) {
    return read_conv(take(name, taps, channels));
  }

  void matrix(const std::string& name, int columns, int rows, Packed& packed) {
    describe(name, columns, rows, packed);
    place(name, packed, size_, 1, packed.panel_bytes);
    size_ += packed.panel_bytes * static_cast<size_t>(packed.panels());
  }

  void interleaved(const std::string& first, const std::string& second, int columns, int rows, Packed& a, Packed& b) {
    describe(first, columns, rows, a);
    describe(second, columns, rows, b);
    const size_t part = a.panel_bytes * kInterleavedPanels;
    const size_t group_bytes = part + b.panel_bytes * kInterleavedPanels;
    place(first, a, size_, kInterleavedPanels, group_bytes);
    place(second, b, size_ + part, kInterleavedPanels, group_bytes);
    size_ += group_bytes * static_cast<size_t>((a.panels() + kInterleavedPanels - 1) / kInterleavedPanels);
  }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  size_t size() const { return size_; }

  void refuse_unused() const {
    for (const Tensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) == 0 && !config_.skips(tensor.name)) {
        unsupported("tensor " + quoted(tensor.name) + " has no place in the architecture as it is served");
      }
    }
  }

  Pages fill(Team& team) {
    Pages arena(size_);
    for (const Source& source : sources_) will_read(source.tensor->data, stored_bytes(*source.tensor));
    for (const Source& source : sources_) source.packed->base = arena.data() + source.offset;
    team.run([&](Team::Member& member) {
      std::vector<uint8_t> room;  // of this thread
      for (const Source& source : sources_) {
        const Packed& packed = *source.packed;
        member.phase(packed.panels(), [&](int index) {
          uint8_t* out = arena.data() + (packed.panel(index) - arena.data());
          const int count = packed.rows_in(index);
          const uint8_t* rows = read_rows(*source.tensor, index * kPanelRows, count, room);
          pack_panel(packed.type, rows, count, packed.columns, 0, out, source.tensor->factor);
        });
      }
    });
    return arena;
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
    return *tensor;
  }

  void describe(const std::string& name, int columns, int rows, Packed& packed) {
    packed.type = take(name, columns, rows).type;
    packed.rows = rows;
    packed.columns = columns;
    packed.panel_bytes = block_bytes(packed.type) * static_cast<size_t>(packed.blocks());
  }

  void place(const std::string& name, Packed& packed, size_t offset, int group, size_t group_bytes) {
    packed.group = group;
    packed.group_bytes = group_bytes;
    sources_.push_back({file_.find_tensor(name), &packed, offset});
  }

  const ModelFile& file_;
  const Config& config_;
  std::set<std::string> used_;
  std::vector<Source> sources_;
  size_t size_ = 0;
};

void plan_attention(Packer& packer, const std::string& block, const Config& config, Layer& layer) {
  if (config.head_norm) {
    layer.q_norm = packer.norm(block + "attn_q_norm.weight", config.head_dim);
    layer.k_norm = packer.norm(block + "attn_k_norm.weight", config.head_dim);
  }
  packer.matrix(block + "attn_q.weight", config.width, config.q_rows(), layer.q);
  packer.matrix(block + "attn_k.weight", config.width, config.kv_width(), layer.k);
  packer.matrix(block + "attn_v.weight", config.width, config.kv_width(), layer.v);
  packer.matrix(block + "attn_output.weight", config.q_width(), config.width, layer.output);
}

void plan_delta(Packer& packer, const std::string& block, const Config& config, Layer& layer) {
  const DeltaShape& delta = config.delta;
  layer.conv = packer.conv(block + "ssm_conv1d.weight", delta.conv, delta.width());
  layer.decay = packer.decay(block + "ssm_a", delta.value_heads);
  layer.step = packer.vector(block + "ssm_dt.bias", delta.value_heads);
  layer.delta_norm = packer.vector(block + "ssm_norm.weight", delta.value_dim);
  packer.matrix(block + "attn_qkv.weight", config.width, delta.width(), layer.qkv);
  packer.matrix(block + "attn_gate.weight", config.width, delta.value_width(), layer.z);
  packer.matrix(block + "ssm_alpha.weight", config.width, delta.value_heads, layer.alpha);
  packer.matrix(block + "ssm_beta.weight", config.width, delta.value_heads, layer.beta);
  packer.matrix(block + "ssm_out.weight", delta.value_width(), config.width, layer.output);
}

}  // namespace

Weights::Weights(const ModelFile& file, const Config& config, Team& team) {
  if (static_cast<size_t>(config.layers) > file.tensors().size()) {
    bad_file("the metadata claims " + std::to_string(config.layers) + " layers, more than the file has tensors");
  }
  Packer packer(file, config);
  layers_.resize(static_cast<size_t>(config.layers));
  for (size_t index = 0; index < layers_.size(); ++index) {
    Layer& layer = layers_[index];
    const std::string block = "blk." + std::to_string(index) + ".";
    layer.attention_norm = packer.norm(block + "attn_norm.weight", config.width);
    layer.ffn_norm = packer.norm(block + config.ffn_norm_name(), config.width);
    layer.kind = config.kinds[index];
    if (layer.kind == LayerKind::attention) {
      plan_attention(packer, block, config, layer);
    } else {
      plan_delta(packer, block, config, layer);
    }
    packer.interleaved(block + "ffn_gate.weight", block + "ffn_up.weight", config.width, config.ffn, layer.gate,
                       layer.up);
    packer.matrix(block + "ffn_down.weight", config.ffn, config.width, layer.down);
  }
  output_norm_ = packer.norm("output_norm.weight", config.width);
  const bool untied = packer.has(kHeadTensor);
  if (untied) packer.matrix(kHeadTensor, config.width, config.vocabulary, head_);
  bytes_per_step_ = packer.size();
  packer.matrix("token_embd.weight", config.width, config.vocabulary, embedding_);
  if (!untied) bytes_per_step_ = packer.size();
  packer.refuse_unused();
  arena_ = packer.fill(team);
  if (!untied) head_ = embedding_;
}

}  // namespace assay
