#include "config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "error.h"
#include "ops.h"

namespace assay {
namespace {

constexpr uint64_t kLargestExtent = uint64_t{1} << 20;  // of a width; sizes computed from them fit
constexpr uint64_t kMostLayers = 4096;

int extent(const std::string& key, uint64_t value, uint64_t largest = kLargestExtent) {
  if (value == 0 || value > largest) bad_file("metadata key " + quoted(key) + " is " + std::to_string(value));
  return static_cast<int>(value);
}

// The metadata of one architecture: its keys begin with its name.
class Keys {
 public:
  Keys(const ModelFile& file, const std::string& architecture) : file_(file), prefix_(architecture + ".") {}

  std::string name(const char* key) const { return prefix_ + key; }
  bool has(const char* key) const { return file_.find(name(key)) != nullptr; }
  std::string text(const char* key) const { return file_.text(name(key)); }
  int required(const char* key) const { return extent(name(key), file_.integer(name(key))); }
  int optional(const char* key, int fallback) const {
    return extent(name(key), file_.integer_or(name(key), static_cast<uint64_t>(fallback)));
  }
  uint64_t integer_or(const char* key, uint64_t fallback) const { return file_.integer_or(name(key), fallback); }
  double real(const char* key) const { return file_.real(name(key)); }
  double real_or(const char* key, double fallback) const { return file_.real_or(name(key), fallback); }

  // Up to kRopeSections counts of pairs, the rest 0.
  void sections(const char* key, int* out) const {
    const Metadata* entry = file_.find(name(key));
    if (entry == nullptr) bad_file("metadata key " + quoted(name(key)) + " is missing");
    const bool numbers = entry->item_type == Value::u32 || entry->item_type == Value::i32;
    if (!numbers || entry->count > kRopeSections) {
      bad_file("metadata key " + quoted(name(key)) + " is no list of up to 4 numbers of 32 bits");
    }
    for (uint64_t i = 0; i < entry->count; ++i) {
      uint32_t count;
      std::memcpy(&count, entry->bytes + i * sizeof count, sizeof count);
      if (count > kMostHeadDim) bad_file("metadata key " + quoted(name(key)) + " holds " + std::to_string(count));
      out[i] = static_cast<int>(count);
    }
  }

 private:
  const ModelFile& file_;
  const std::string prefix_;
};

Architecture known(const std::string& name) {
  if (name == "llama") return Architecture::llama;
  if (name == "qwen3") return Architecture::qwen3;
  if (name == "qwen35") return Architecture::qwen35;
  unsupported("architecture " + quoted(name) + " is not served (llama, qwen3 and qwen35 are)");
}

// One of several files that a model was cut into: each looks like a model that lacks tensors.
void refuse_part(const ModelFile& file) {
  const uint64_t parts = file.integer_or("split.count", 1);
  if (parts > 1) unsupported("a model in " + std::to_string(parts) + " files is not served: join them into one first");
}

void refuse_extensions(const Keys& keys) {
  if (keys.integer_or("expert_count", 0) != 0) unsupported("mixture-of-experts models are not served");
  if (keys.has("rope.scaling.type") && keys.text("rope.scaling.type") != "none") {
    unsupported("rope scaling " + quoted(keys.text("rope.scaling.type")) + " is not served");
  }
}

void read_layers(const Keys& keys, Config& config) {
  const int blocks = extent(keys.name("block_count"), static_cast<uint64_t>(keys.required("block_count")), kMostLayers);
  const uint64_t skipped = keys.integer_or("nextn_predict_layers", 0);
  if (skipped >= static_cast<uint64_t>(blocks)) {
    bad_file("of " + std::to_string(blocks) + " layers " + std::to_string(skipped) + " predict further tokens");
  }
  config.skipped = static_cast<int>(skipped);
  config.layers = blocks - config.skipped;
  config.kinds.assign(static_cast<size_t>(config.layers), LayerKind::attention);
}

void read_attention(const Keys& keys, Config& config) {
  config.heads = keys.required("attention.head_count");
  config.kv_heads = keys.optional("attention.head_count_kv", config.heads);
  config.head_dim = keys.optional("attention.key_length", std::max(config.width / config.heads, 1));
  config.rope_dim = keys.optional("rope.dimension_count", config.head_dim);
  config.rope_base = keys.real_or("rope.freq_base", 10000.0);
  config.rope_style =
      config.architecture == Architecture::llama && !config.raw ? RopeStyle::pairs : RopeStyle::halves;
  config.head_norm = config.architecture != Architecture::llama;
  config.gated = config.architecture == Architecture::qwen35;

  if (keys.optional("attention.value_length", config.head_dim) != config.head_dim) {
    unsupported("key and value heads of different length are not served");
  }
  if (config.heads % config.kv_heads != 0) {
    bad_file(std::to_string(config.heads) + " query heads do not share " + std::to_string(config.kv_heads) +
             " key/value heads evenly");
  }
  if (config.head_dim % 8 != 0 || config.head_dim > kMostHeadDim) {
    unsupported("heads of " + std::to_string(config.head_dim) + " values (multiples of 8 up to 256 are served)");
  }
  if (static_cast<uint64_t>(config.heads) * static_cast<uint64_t>(config.head_dim) > kLargestExtent) {
    bad_file(std::to_string(config.heads) + " heads of " + std::to_string(config.head_dim) + " values");
  }
  if (config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim) {
    bad_file("rope over " + std::to_string(config.rope_dim) + " of " + std::to_string(config.head_dim) + " values");
  }
  if (!(config.rope_base > 0.0) || !std::isfinite(config.rope_base)) bad_file("the rope base is not positive");
}

// What layers of qwen35 are: full attention at every `full_attention_interval`-th, the delta rule at the others.
void read_delta(const Keys& keys, Config& config) {
  const size_t interval = static_cast<size_t>(keys.optional("full_attention_interval", 4));
  for (size_t index = 0; index < config.kinds.size(); ++index) {
    if ((index + 1) % interval != 0) config.kinds[index] = LayerKind::delta;
  }
  if (config.count(LayerKind::attention) == 0) unsupported("models without a layer of full attention are not served");
  keys.sections("rope.dimension_sections", config.rope_sections);

  DeltaShape& delta = config.delta;
  delta.key_heads = keys.required("ssm.group_count");
  delta.value_heads = keys.required("ssm.time_step_rank");
  delta.key_dim = keys.required("ssm.state_size");
  delta.conv = keys.required("ssm.conv_kernel");
  const int inner = keys.required("ssm.inner_size");
  if (inner % delta.value_heads != 0) {
    bad_file(std::to_string(inner) + " values are no " + std::to_string(delta.value_heads) + " value heads");
  }
  delta.value_dim = inner / delta.value_heads;
  if (delta.value_heads % delta.key_heads != 0) {
    bad_file(std::to_string(delta.value_heads) + " value heads do not share " + std::to_string(delta.key_heads) +
             " key heads evenly");
  }
  for (const int dim : {delta.key_dim, delta.value_dim}) {
    if (dim % 32 != 0 || dim > kMostDeltaDim) {
      unsupported("delta-rule heads of " + std::to_string(dim) + " values (multiples of 32 up to 128 are served)");
    }
  }
  if (delta.conv < 2 || delta.conv > kMostConv) {
    unsupported("a convolution over " + std::to_string(delta.conv) + " positions (2 to 8 are served)");
  }
}

}  // namespace

int Config::count(LayerKind kind) const { return static_cast<int>(std::count(kinds.begin(), kinds.end(), kind)); }

const char* Config::ffn_norm_name() const {
  return architecture == Architecture::qwen35 ? "post_attention_norm.weight" : "ffn_norm.weight";
}

bool Config::skips(const std::string& tensor) const {
  for (int layer = layers; layer < layers + skipped; ++layer) {
    if (tensor.rfind("blk." + std::to_string(layer) + ".", 0) == 0) return true;
  }
  return false;
}

Config read_config(const ModelFile& file) {
  refuse_part(file);
  const std::string architecture = file.text("general.architecture");
  Config config{};
  config.architecture = known(architecture);
  config.raw = file.raw();
  const Keys keys(file, architecture);
  refuse_extensions(keys);

  const Tensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) bad_file("tensor 'token_embd.weight' is missing");

  read_layers(keys, config);
  config.width = keys.required("embedding_length");
  config.ffn = keys.required("feed_forward_length");
  config.context = keys.required("context_length");
  config.vocabulary = extent("vocabulary (rows of token_embd.weight)", embedding->rows, uint64_t{1} << 24);
  if (embedding->columns != static_cast<uint64_t>(config.width)) {
    bad_file("tensor 'token_embd.weight' is not " + keys.name("embedding_length") + " wide");
  }
  config.epsilon = static_cast<float>(keys.real("attention.layer_norm_rms_epsilon"));
  if (!(config.epsilon >= 0.0f) || !std::isfinite(config.epsilon)) bad_file("the norms' epsilon is not a number");
  read_attention(keys, config);
  if (config.architecture == Architecture::qwen35) read_delta(keys, config);
  if (config.width % kBlock != 0 || config.ffn % kBlock != 0 || config.q_width() % kBlock != 0) {
    unsupported("widths that are no multiples of 32 are not served");
  }
  return config;
}

}  // namespace assay
