// The shape of a `llama` model, read from the metadata and checked.
#pragma once

#include <cstdint>

#include "model_file.h"

namespace assay {

struct Config {
  int layers;
  int width;     // embedding length
  int ffn;       // feed-forward length
  int heads;     // query heads
  int kv_heads;  // divides heads
  int head_dim;  // multiple of 8, at most kMostHeadDim
  int rope_dim;  // even, at most head_dim
  int vocabulary;
  int context;    // positions the model was trained for
  float epsilon;  // of the norms
  double rope_base;

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

// Error naming the key or architecture when a value is missing, absurd or not served.
Config read_config(const ModelFile& file);

}  // namespace assay
