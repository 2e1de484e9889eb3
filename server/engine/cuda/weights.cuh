// A model's weights on the device, packed there: the only copy kept.
#pragma once

#include <string>
#include <vector>

#include "../device_weights.h"
#include "../progress.h"
#include "kernels.cuh"

namespace assay::cuda {

// Matrices that read the same activations, one below the other in one output row. Those of one
// type are one matrix.
struct Stack {
  std::vector<Matrix> parts;
  int rows = 0;
};

// What a layer of the other kind has is null.
struct Layer {
  LayerKind kind = LayerKind::attention;
  const float* attention_norm = nullptr;
  const float* ffn_norm = nullptr;
  Stack input;  // device_weights.h says of what
  Stack gate_up;
  Stack output, down;  // of one part
  HeadNorms head_norms;
  const float* conv = nullptr;
  const float* decay = nullptr;
  const float* dt = nullptr;
  const float* value_norm = nullptr;
};

class Weights {
 public:
  // Uploads what is planned; the file may go then.
  Weights(const DeviceWeights& planned, const Config& config, const Stream& stream, const Progress& progress);

  const std::vector<Layer>& layers() const { return layers_; }
  const Matrix& embedding() const { return embedding_; }
  const Matrix& head() const { return head_; }
  const float* output_norm() const { return output_norm_; }
  bool has_floats() const { return has_floats_; }  // among the matrices that activations meet
  uint64_t bytes_per_step() const { return bytes_per_step_; }

 private:
  class Loader;

  DeviceArena arena_;
  std::vector<Layer> layers_;
  Matrix embedding_;
  Matrix head_;
  const float* output_norm_ = nullptr;
  uint64_t bytes_per_step_ = 0;
  bool has_floats_ = false;
};

}  // namespace assay::cuda
