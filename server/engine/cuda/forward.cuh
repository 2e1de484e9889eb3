// One pass of up to kMostRows tokens through the model, on the device.
//
// What a pass needs to know (tokens, slots, positions) is one small copy to the
// device; kernels find the rest there. A pass of few rows takes the decode form
// of every operation and is launched as a CUDA graph, captured at the second pass of
// each number of rows, of logits, and power of two of position blocks. Which form computes a
// row changes no bit of it.
#pragma once

#include <map>
#include <tuple>

#include "../pass_plan.h"
#include "cache.cuh"
#include "state.cuh"
#include "weights.cuh"

namespace assay::cuda {

class Forward {
 public:
  Forward(const Config& config, const Weights& weights, const Cache& cache, State& state, const Stream& stream,
          const WorkspaceSizes& sizes, int context);
  ~Forward();
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  // Computes the pass and writes keys, values, state, logits and greedy ids. The blocks its positions
  // lie in belong to its slots (Cache::extend).
  void run(const Pass& pass);

 private:
  // How the rows of a pass attend.
  struct Attention {
    bool alone;       // each row by itself (decode form)
    int most_blocks;  // of a row, at least
    int tiles;        // of the prefill form
    int segments;     // of the delta rule, at least
  };

  Attention plan(const Pass& pass);
  void plan_delta(const Pass& pass);
  void layers(int rows, const Attention& attention);
  void attend(const Layer& layer, int index, int rows, const Attention& attention);
  void remember(const Layer& layer, int index, int rows, int segments);
  void feed_forward(const Layer& layer, int rows);
  void attend_alone(int layer, int first, int rows, int most_blocks, float scale);
  void logits(int first, int count);
  void linear(const Stack& stack, const Activations& in, float* out, bool add);
  void linear(const Matrix& matrix, const Activations& in, float* out, int stride, bool add);
  void run_decode(const Pass& pass, const Attention& attention);
  Activations activations(int rows, int columns) const;

  const Config& config_;
  const Weights& weights_;
  const Cache& cache_;
  State& state_;
  const Stream& stream_;
  HeadShape shape_;
  int gates_;  // of a row, in front of its queries
  int most_blocks_;
  int partial_rows_;  // that attend alone at once

  DeviceArray<PassInputs> inputs_;
  DeviceArray<QueryTile> tiles_;
  PinnedArray<PassInputs> host_inputs_;
  PinnedArray<QueryTile> host_tiles_;
  DeviceArray<float> cosines_, sines_;
  DeviceArray<float> residual_;
  DeviceArray<float> heads_;  // what a layer makes of its input; then gate and up
  DeviceArray<float> attended_;
  DeviceArray<float> partials_;
  DeviceArray<float> x_;
  DeviceArray<uint4> q_, q_residual_;
  DeviceArray<float2> scale_;
  DeviceArray<float> logits_;
  DeviceArray<int32_t> greedy_;
  DeviceArray<DeltaInputs> segments_;
  PinnedArray<DeltaInputs> host_segments_;
  DeviceArray<float> mixed_;
  DeviceArray<float2> decay_gates_;
  std::map<std::tuple<int, int, int>, cudaGraphExec_t> graphs_;  // rows, wanted rows, blocks; nullptr: seen once
};

}  // namespace assay::cuda
