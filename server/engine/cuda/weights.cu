#include "weights.cuh"

#include "upload.cuh"

namespace assay::cuda {

// Gives what a plan names a place on the device and has it uploaded there.
class Weights::Loader {
 public:
  Loader(const DeviceWeights& planned, const Stream& stream, Weights& weights)
      : upload_(planned, stream), weights_(weights) {}

  const float* vector(const VectorPlan& planned) {
    weights_.vectors_.emplace_back(static_cast<size_t>(planned.count));
    upload_.vector(planned, weights_.vectors_.back().data());
    return weights_.vectors_.back().data();
  }

  Matrix matrix(const MatrixPlan& planned) {
    weights_.matrices_.emplace_back(planned.bytes());
    upload_.matrix(planned, weights_.matrices_.back().data());
    return {planned.type, planned.rows, planned.columns, weights_.matrices_.back().data()};
  }

  Stack stack(const StackPlan& planned) {
    Stack stack;
    stack.rows = planned.rows;
    for (const MatrixPlan& part : planned.parts) stack.parts.push_back(matrix(part));
    return stack;
  }

  void wait() const { upload_.wait(); }

 private:
  Upload upload_;
  Weights& weights_;
};

Weights::Weights(const DeviceWeights& planned, const Stream& stream)
    : bytes_per_step_(planned.bytes_per_step()), has_floats_(planned.has_floats()) {
  Loader loader(planned, stream, *this);
  for (const LayerTensors& layer : planned.layers()) {
    const float* attention_norm = loader.vector(layer.attention_norm);
    const float* ffn_norm = loader.vector(layer.ffn_norm);
    Stack qkv = loader.stack(layer.qkv);
    Stack gate_up = loader.stack(layer.gate_up);
    Stack output = loader.stack(layer.output);
    Stack down = loader.stack(layer.down);
    layers_.push_back({attention_norm, ffn_norm, std::move(qkv), std::move(gate_up), std::move(output),
                       std::move(down)});
  }
  output_norm_ = loader.vector(planned.output_norm());
  if (planned.head() != nullptr) head_ = loader.matrix(*planned.head());
  embedding_ = loader.matrix(planned.embedding());
  if (planned.head() == nullptr) head_ = embedding_;
  loader.wait();  // the file may go now
}

}  // namespace assay::cuda
