// The shape of a model, read from the metadata and checked.
//
// Three architectures are served: `llama`; `qwen3`, which norms each query and
// key head; and `qwen35`, whose layers are of two kinds: full attention with a
// gate, and a gated delta rule with a short convolution, whose memory of a
// sequence has one size however long it is (ops.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_file.h"
#include "ops.h"

namespace assay {

enum class Architecture { llama, qwen3, qwen35 };

// Which values of a head turn together: 2i with 2i + 1, or i with i + rope_dim / 2.
enum class RopeStyle { pairs, halves };

enum class LayerKind { attention, delta };

constexpr int kRopeSections = 4;  // of which text, height and width are used
constexpr int kMostConv = 8;

// The gated delta rule of a layer. A row of its input is [query heads | key heads | value heads], the first two
// key_heads of key_dim each.
struct DeltaShape {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;      // this and value_dim: multiples of 32, at most kMostDeltaDim
  int value_dim = 0;
  int conv = 0;  // positions the convolution sees, 2 to kMostConv

  int group() const { return value_heads / key_heads; }  // value heads of a key head
  int key_width() const { return key_heads * key_dim; }
  int value_width() const { return value_heads * value_dim; }
  int width() const { return 2 * key_width() + value_width(); }
};

struct Config {
  Architecture architecture;
  int layers;   // that are computed
  int skipped;  // layers behind them that predict further tokens; their tensors are not read
  int width;    // embedding length
  int ffn;      // feed-forward length
  int heads;    // query heads
  int kv_heads;  // divides heads
  int head_dim;  // multiple of 8, at most kMostHeadDim
  int rope_dim;  // even, at most head_dim
  int vocabulary;
  int context;    // positions the model was trained for
  float epsilon;  // of the norms
  double rope_base;
  RopeStyle rope_style;
  int rope_sections[kRopeSections];  // pairs of rope_dim that turn by each of a token's positions; 0: there is one
  bool head_norm;                    // each query and key head is normed before it turns
  bool gated;                        // attn_q has a gate of head_dim rows behind each head's query
  std::vector<LayerKind> kinds;      // one a layer
  DeltaShape delta;                  // all 0 where no layer has the kind

  // The tensors are as a safetensors author stores them. Of qwen35 then: norms lack their 1 (but ssm_norm), ssm_a is
  // the logarithm, and value head h belongs to key head h / group; in a GGUF 1 is added, ssm_a is -exp of it, and
  // value head h belongs to key head h % key_heads. Of llama: heads turn by halves, not by pairs.
  bool raw;

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  int q_rows() const { return gated ? 2 * q_width() : q_width(); }  // of attn_q
  int count(LayerKind kind) const;
  const char* ffn_norm_name() const;            // of a layer's tensors
  bool skips(const std::string& tensor) const;  // it is of a layer that is not computed

  // The `index`-th value head (below delta.group()) of a key head.
  int first_value_head(int key_head) const { return raw ? key_head * delta.group() : key_head; }
  int value_head_step() const { return raw ? 1 : delta.key_heads; }
};

// Error naming the key or architecture when a value is missing, absurd or not served.
Config read_config(const ModelFile& file);

}  // namespace assay
