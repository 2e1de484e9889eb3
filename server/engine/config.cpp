#include "config.h"

#include <cmath>
#include <string>

#include "error.h"
#include "ops.h"

namespace assay {
namespace {

constexpr uint64_t kLargestExtent = uint64_t{1} << 20;  // of a width; sizes computed from them fit

int extent(const std::string& key, uint64_t value, uint64_t largest = kLargestExtent) {
  if (value == 0 || value > largest) bad_file("metadata key " + quoted(key) + " is " + std::to_string(value));
  return static_cast<int>(value);
}

int required(const ModelFile& file, const std::string& key) { return extent(key, file.integer(key)); }

int optional(const ModelFile& file, const std::string& key, int fallback) {
  return extent(key, file.integer_or(key, static_cast<uint64_t>(fallback)));
}

void refuse_extensions(const ModelFile& file) {
  if (file.integer_or("llama.expert_count", 0) != 0) unsupported("mixture-of-experts models are not served");
  if (file.find("llama.rope.scaling.type") != nullptr && file.text("llama.rope.scaling.type") != "none") {
    unsupported("rope scaling " + quoted(file.text("llama.rope.scaling.type")) + " is not served");
  }
}

}  // namespace

Config read_config(const ModelFile& file) {
  const std::string architecture = file.text("general.architecture");
  if (architecture != "llama") {
    unsupported("architecture " + quoted(architecture) + " is not served (only 'llama' is)");
  }
  refuse_extensions(file);

  const Tensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) bad_file("tensor 'token_embd.weight' is missing");

  Config config{};
  config.layers = required(file, "llama.block_count");
  config.width = required(file, "llama.embedding_length");
  config.ffn = required(file, "llama.feed_forward_length");
  config.heads = required(file, "llama.attention.head_count");
  config.kv_heads = optional(file, "llama.attention.head_count_kv", config.heads);
  config.context = required(file, "llama.context_length");
  config.head_dim = optional(file, "llama.attention.key_length", config.width / config.heads);
  config.rope_dim = optional(file, "llama.rope.dimension_count", config.head_dim);
  config.vocabulary = extent("vocabulary (rows of token_embd.weight)", embedding->rows, uint64_t{1} << 24);
  if (embedding->columns != static_cast<uint64_t>(config.width)) {
    bad_file("tensor 'token_embd.weight' is not llama.embedding_length wide");
  }
  config.epsilon = static_cast<float>(file.real("llama.attention.layer_norm_rms_epsilon"));
  config.rope_base = file.real_or("llama.rope.freq_base", 10000.0);

  if (optional(file, "llama.attention.value_length", config.head_dim) != config.head_dim) {
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
  if (config.width % kBlock != 0 || config.ffn % kBlock != 0 || config.q_width() % kBlock != 0) {
    unsupported("widths that are no multiples of 32 are not served");
  }
  if (!(config.epsilon >= 0.0f) || !std::isfinite(config.epsilon)) bad_file("the norms' epsilon is not a number");
  if (!(config.rope_base > 0.0) || !std::isfinite(config.rope_base)) bad_file("the rope base is not positive");
  return config;
}

}  // namespace assay
