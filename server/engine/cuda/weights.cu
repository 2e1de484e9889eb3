#include "weights.cuh"

#include "upload.cuh"

namespace assay::cuda {

// Gives what a plan names a place in the arena and has it uploaded there.
class Weights::Loader {
 public:
  Loader(const DeviceWeights& planned, const Config& config, const Stream& stream, const Progress& progress,
         Weights& weights)
      : upload_(planned, config, stream, progress), weights_(weights) {}

  const float* vector(const VectorPlan& planned) {
    if (planned.tensor == nullptr) return nullptr;
    float* kept = weights_.arena_.take<float>(static_cast<size_t>(planned.count));
    upload_.vector(planned, kept);
    return kept;
  }

  Matrix matrix(const MatrixPlan& planned) {
    uint8_t* packed = weights_.arena_.take<uint8_t>(planned.bytes());
    upload_.matrix(planned, packed);
    return {planned.type, planned.rows, planned.columns, packed, planned.factor};
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

Weights::Weights(const DeviceWeights& planned, const Config& config, const Stream& stream, const Progress& progress)
    : arena_(planned.bytes()), bytes_per_step_(planned.bytes_per_step()), has_floats_(planned.has_floats()) {
  Loader loader(planned, config, stream, progress, *this);
  for (const LayerTensors& tensors : planned.layers()) {
    Layer layer;
    layer.kind = tensors.kind;
    layer.attention_norm = loader.vector(tensors.attention_norm);
    layer.ffn_norm = loader.vector(tensors.ffn_norm);
    layer.input = loader.stack(tensors.input);
    layer.gate_up = loader.stack(tensors.gate_up);
    layer.output = loader.stack(tensors.output);
    layer.down = loader.stack(tensors.down);
    layer.head_norms.query = loader.vector(tensors.query_norm);
    layer.head_norms.key = loader.vector(tensors.key_norm);
    layer.conv = loader.vector(tensors.conv);
    layer.decay = loader.vector(tensors.decay);
    layer.dt = loader.vector(tensors.dt);
    layer.value_norm = loader.vector(tensors.value_norm);
    layers_.push_back(std::move(layer));
  }
  output_norm_ = loader.vector(planned.output_norm());
  if (planned.head() != nullptr) head_ = loader.matrix(*planned.head());
  embedding_ = loader.matrix(planned.embedding());
  if (planned.head() == nullptr) head_ = embedding_;
  loader.wait();  // the file may go now
}

}  // namespace assay::cuda
