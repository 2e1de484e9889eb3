// A model's weights, repacked once: the only copy kept in memory.
#pragma once

#include <vector>

#include "config.h"
#include "model_file.h"
#include "mapping.h"
#include "packed.h"
#include "team.h"

namespace assay {

// What a layer of either kind has; what the other kind alone has is empty.
struct Layer {
  LayerKind kind;
  Packed q, k, v;                  // of attention
  Packed qkv, z, alpha, beta;      // of the delta rule: its rows, their gates, and each value head's two
  Packed output;                   // of both
  Packed gate, up;  // interleaved, two panels of each in turn
  Packed down;
  std::vector<float> attention_norm;
  std::vector<float> q_norm, k_norm;  // of each head, where the model norms them
  std::vector<float> ffn_norm;
  std::vector<float> conv;         // [conv][channels], the oldest position first
  std::vector<float> decay, step;  // of each value head: ssm_a, below 0, and ssm_dt's bias
  std::vector<float> delta_norm;   // of a value head
};

class Weights {
 public:
  // Error naming the tensor when one is missing, has another shape, or is one
  // this architecture does not have (a model that is silently computed without
  // its biases would be silently wrong).
  Weights(const ModelFile& file, const Config& config, Team& team);

  const std::vector<Layer>& layers() const { return layers_; }
  const Packed& embedding() const { return embedding_; }
  const Packed& head() const { return head_; }  // the embedding itself when tied
  const std::vector<float>& output_norm() const { return output_norm_; }
  uint64_t bytes_per_step() const { return bytes_per_step_; }

 private:
  std::vector<Layer> layers_;
  Packed embedding_;
  Packed head_;
  std::vector<float> output_norm_;
  uint64_t bytes_per_step_ = 0;
  Pages arena_;
};

}  // namespace assay
