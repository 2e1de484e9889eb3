// Which of a model's tensors a device keeps, and how: what loading uploads, and what a plan counts.
//
// Matrices that read the same activations form a stack, one below the other in one output row; those of a
// stack that follow each other with one type (and one factor) are one matrix. Everything else is a vector of floats.
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "model_file.h"
#include "tiles.h"

namespace assay {

// Consecutive rows of a tensor.
struct RowRun {
  const Tensor* tensor;
  int first;
  int count;
};

// Rows of tensors of one type, one below the other.
struct MatrixPlan {
  TensorType type = TensorType::f32;
  int rows = 0;
  int columns = 0;
  std::vector<RowRun> runs;
  float factor = 1.0f;  // of each of their tensors

  size_t bytes() const { return packed_bytes(type, rows, columns); }
};

struct StackPlan {
  std::vector<MatrixPlan> parts;
  int rows = 0;
};

// By which function of vectors.h a vector is read.
enum class VectorKind { plain, norm, decay, conv };

// Every value of a tensor, as floats; without a tensor the model has no such vector.
struct VectorPlan {
  const Tensor* tensor = nullptr;
  int count = 0;
  VectorKind kind = VectorKind::plain;

  size_t bytes() const { return static_cast<size_t>(count) * sizeof(float); }
};

struct LayerTensors {
  LayerKind kind = LayerKind::attention;
  VectorPlan attention_norm;
  VectorPlan ffn_norm;
  StackPlan input;  // attention: gates where the model has them, queries, keys, values;
                    // delta: queries, keys, values of all heads, then the gate z, then a, then b
  StackPlan gate_up;
  StackPlan output, down;  // of one part

  VectorPlan query_norm, key_norm;  // attention, where heads are normed

  // delta
  VectorPlan conv;        // [conv][channels]
  VectorPlan decay;       // [value_heads]: -exp(A_log)
  VectorPlan dt;          // [value_heads]
  VectorPlan value_norm;  // [value_dim]
};

// Error when a row is longer than a device has room for the scales of.
void require_columns(const Config& config);

class DeviceWeights {
 public:
  // Error naming the tensor when one is missing, has another shape, or is one that this architecture does
  // not have. The tensors are the file's: it must outlive this.
  DeviceWeights(const ModelFile& file, const Config& config);

  const std::vector<LayerTensors>& layers() const { return layers_; }
  const VectorPlan& output_norm() const { return output_norm_; }
  const MatrixPlan& embedding() const { return embedding_; }
  const MatrixPlan* head() const { return tied_ ? nullptr : &head_; }  // nullptr: the embedding is the head too

  uint64_t bytes() const { return bytes_; }                    // of all of them in one allocation
  uint64_t bytes_per_step() const { return bytes_per_step_; }  // of the matrices that every step reads
  bool has_floats() const { return has_floats_; }              // among the matrices

  // Of the tensors' rows in the file.
  uint64_t file_bytes() const { return file_bytes_; }
  // The file's bytes that go to the device at once while it is loaded: whole rows.
  size_t piece_bytes() const { return piece_bytes_; }

 private:
  class Finder;

  std::vector<LayerTensors> layers_;
  VectorPlan output_norm_;
  MatrixPlan embedding_;
  MatrixPlan head_;
  bool tied_ = true;
  bool has_floats_ = false;
  size_t piece_bytes_ = 0;
  uint64_t file_bytes_ = 0;
  uint64_t bytes_ = 0;
  uint64_t bytes_per_step_ = 0;
};

}  // namespace assay
