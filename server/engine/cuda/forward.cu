#include "forward.cuh"

#include <algorithm>
#include <cmath>

#include "../rope_table.h"

namespace assay::cuda {
namespace {

size_t times(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

int power_of_two(int least, int most) {
  int power = 1;
  while (power < least) power *= 2;
  return std::min(power, most);
}

// A graph of what `work` puts on the stream.
template <typename Work>
cudaGraphExec_t capture(const Stream& stream, const Work& work) {
  cudaGraph_t graph = nullptr;
  ASSAY_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  ASSAY_CUDA(cudaStreamEndCapture(stream.get(), &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  ASSAY_CUDA(error);
  return executable;
}

}  // namespace

Forward::Forward(const Config& config, const Weights& weights, const Cache& cache, State& state, const Stream& stream,
                 const WorkspaceSizes& sizes, int context)
    : config_(config),
      weights_(weights),
      cache_(cache),
      state_(state),
      stream_(stream),
      shape_{config.heads,    config.kv_heads,
             config.head_dim, config.rope_dim,
             config.q_rows() + 2 * config.kv_width(), config.rope_style == RopeStyle::halves},
      gates_(config.q_rows() - config.q_width()),
      most_blocks_(cache.most_blocks()),
      partial_rows_(sizes.partial_rows),
      inputs_(1),
      tiles_(sizes.tiles),
      host_inputs_(1),
      host_tiles_(sizes.tiles),
      cosines_(sizes.angles),
      sines_(sizes.angles),
      residual_(sizes.residual),
      heads_(sizes.heads),
      attended_(sizes.attended),
      partials_(sizes.partials),
      x_(sizes.x),
      q_(sizes.quantised),
      q_residual_(sizes.quantised),
      scale_(sizes.scales),
      logits_(sizes.logits),
      greedy_(kMostLogitRows),
      segments_(sizes.segments),
      host_segments_(sizes.segments),
      mixed_(sizes.mixed),
      decay_gates_(sizes.gates) {
  const RopeTable table(context, config.rope_dim, config.rope_base, config.rope_sections);
  stream_.upload(cosines_.data(), table.cosine.data(), table.cosine.size());
  stream_.upload(sines_.data(), table.sine.data(), table.sine.size());
  stream_.wait();
}

Forward::~Forward() {
  for (const auto& entry : graphs_) {
    if (entry.second != nullptr) cudaGraphExecDestroy(entry.second);
  }
}

Activations Forward::activations(int rows, int columns) const {
  float* x = weights_.has_floats() ? x_.data() : nullptr;
  return {x, q_.data(), q_residual_.data(), scale_.data(), rows, (rows + 1) / 2 * 2, columns};
}

void Forward::linear(const Matrix& matrix, const Activations& in, float* out, int stride, bool add) {
  if (in.rows <= kMostDecodeRows) {
    qlinear_decode(matrix, in, out, stride, add, stream_.get());
  } else {
    qlinear_prefill(matrix, in, out, stride, add, stream_.get());
  }
}

void Forward::linear(const Stack& stack, const Activations& in, float* out, bool add) {
  for (const Matrix& matrix : stack.parts) {
    linear(matrix, in, out, stack.rows, add);
    out += matrix.rows;
  }
}

// Attention of every row, to the residual.
void Forward::attend(const Layer& layer, int index, int rows, const Attention& attention) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  const KvView kv = cache_.view(index, inputs_.data()->slots, inputs_.data()->visible);
  float* const queries = heads_.data() + gates_;
  HeadNorms norms = layer.head_norms;
  norms.epsilon = config_.epsilon;
  place_heads(queries, rows, shape_, norms, cosines_.data(), sines_.data(), kv, stream_.get());
  if (attention.alone) {
    for (int first = 0; first < rows; first += partial_rows_) {
      attend_alone(index, first, std::min(partial_rows_, rows - first), attention.most_blocks, scale);
    }
  } else {
    attention_prefill(queries, shape_, scale, kv, tiles_.data(), attention.tiles, attended_.data(), stream_.get());
  }
  const int width = config_.q_width(), few = few_refinements(width / kBlock);
  const Activations attended = activations(rows, width);
  if (config_.gated) {
    sigmoid_mul(attended_.data(), width, heads_.data(), shape_.stride, few, attended, stream_.get());
  } else {
    quantise(attended_.data(), width, few, attended, stream_.get());
  }
  linear(layer.output, attended, residual_.data(), true);
}

// Rows [first, first + rows) of the pass, as many as there is room for partial results of.
void Forward::attend_alone(int index, int first, int rows, int most_blocks, float scale) {
  const float* queries = heads_.data() + gates_ + times(first, shape_.stride);
  float* out = attended_.data() + times(first, config_.q_width());
  const KvView kv = cache_.view(index, inputs_.data()->slots + first, inputs_.data()->visible + first);
  attention_decode(queries, rows, shape_, scale, kv, most_blocks, partials_.data(), stream_.get());
  attention_fold(partials_.data(), kv.visible, rows, shape_, most_blocks, out, stream_.get());
}

// The gated delta rule of every row, to the residual.
void Forward::remember(const Layer& layer, int index, int rows, int segments) {
  const DeltaShape& shape = config_.delta;
  const DeltaView view = state_.view(index);
  const DeltaInputs* given = segments_.data();
  const DeltaPass pass{given->segment_of, given->segments, &given->count, rows, segments};
  const int stride = layer.input.rows, width = shape.value_width();
  const float* const z = heads_.data() + shape.width();
  const float* const a = z + width;
  conv1d(heads_.data(), stride, layer.conv, view, pass, mixed_.data(), stream_.get());
  delta_inputs(mixed_.data(), a, a + shape.value_heads, stride, layer.decay, layer.dt, view, rows, decay_gates_.data(),
               stream_.get());
  delta(mixed_.data(), decay_gates_.data(), view, pass, attended_.data(), stream_.get());
  delta_keep(heads_.data(), stride, mixed_.data(), view, pass, stream_.get());
  const Activations out = activations(rows, width);
  gated_norm(attended_.data(), width, layer.value_norm, config_.epsilon, shape.value_dim, z, stride,
             few_refinements(width / kBlock), out, stream_.get());
  linear(layer.output, out, residual_.data(), true);
}

void Forward::feed_forward(const Layer& layer, int rows) {
  const int width = config_.width, ffn = config_.ffn;
  const Activations input = activations(rows, width);
  rmsnorm(residual_.data(), width, nullptr, layer.ffn_norm, config_.epsilon, few_refinements(width / kBlock), input,
          stream_.get());
  linear(layer.gate_up, input, heads_.data(), false);
  const Activations hidden = activations(rows, ffn);
  silu_mul(heads_.data(), heads_.data() + ffn, 2 * ffn, few_refinements(ffn / kBlock), hidden, stream_.get());
  linear(layer.down, hidden, residual_.data(), true);
}

void Forward::layers(int rows, const Attention& attention) {
  const int width = config_.width;
  int attending = 0, remembering = 0;
  embed(weights_.embedding(), inputs_.data()->tokens, rows, residual_.data(), stream_.get());
  for (const Layer& layer : weights_.layers()) {
    const Activations input = activations(rows, width);
    rmsnorm(residual_.data(), width, nullptr, layer.attention_norm, config_.epsilon, few_refinements(width / kBlock),
            input, stream_.get());
    linear(layer.input, input, heads_.data(), false);
    if (layer.kind == LayerKind::attention) {
      attend(layer, attending++, rows, attention);
    } else {
      remember(layer, remembering++, rows, attention.segments);
    }
    feed_forward(layer, rows);
  }
}

// Logits and greedy ids of the wanted rows [first, first + count).
void Forward::logits(int first, int count) {
  const Activations input = activations(count, config_.width);
  rmsnorm(residual_.data(), config_.width, inputs_.data()->wanted + first, weights_.output_norm(), config_.epsilon,
          config_.width / kBlock, input, stream_.get());
  linear(weights_.head(), input, logits_.data(), config_.vocabulary, false);
  argmax(logits_.data(), config_.vocabulary, count, greedy_.data(), stream_.get());
}

Forward::Attention Forward::plan(const Pass& pass) {
  PassInputs& inputs = host_inputs_[0];
  const int group = config_.heads / config_.kv_heads, rows = static_cast<int>(pass.tokens.size());
  Attention attention{true, 1, 0, static_cast<int>(pass.segments.size())};
  std::copy(pass.tokens.begin(), pass.tokens.end(), inputs.tokens);
  std::copy(pass.wanted.begin(), pass.wanted.end(), inputs.wanted);
  for (const Segment& segment : pass.segments) {
    attention.alone = attention.alone && segment.count == 1;
    for (int i = 0; i < segment.count; ++i) {
      inputs.slots[segment.first + i] = segment.slot;
      inputs.visible[segment.first + i] = segment.position + i + 1;
    }
    attention.most_blocks =
        std::max(attention.most_blocks, (segment.position + segment.count - 1) / kPositionBlock + 1);
    for (int first = 0; first < segment.count * group; first += kTileQueries) {
      host_tiles_[static_cast<size_t>(attention.tiles++)] = {segment.first, first,
                                                             std::min(kTileQueries, segment.count * group - first)};
    }
  }
  attention.alone = attention.alone || rows <= kMostDecodeRows;
  // The last tiles see the most positions; begun first, they end no later than the rest.
  std::reverse(host_tiles_.data(), host_tiles_.data() + attention.tiles);
  return attention;
}

// What gated delta layers must know of the pass; their slots are written to from here on.
void Forward::plan_delta(const Pass& pass) {
  DeltaInputs& inputs = host_segments_[0];
  inputs.count = 0;
  for (const Segment& segment : pass.segments) {
    const int base = state_.write(segment.slot, segment.position, segment.count);
    std::fill_n(inputs.segment_of + segment.first, segment.count, inputs.count);
    inputs.segments[inputs.count++] = {segment.slot, segment.first, segment.count, segment.position, base};
  }
  stream_.upload(segments_.data(), host_segments_.data(), 1);
}

void Forward::run_decode(const Pass& pass, const Attention& attention) {
  const int rows = static_cast<int>(pass.tokens.size()), wanted = static_cast<int>(pass.wanted.size());
  const int blocks = power_of_two(attention.most_blocks, most_blocks_);
  const auto work = [&] {
    layers(rows, {true, blocks, 0, rows});
    if (wanted != 0) logits(0, wanted);
  };
  const auto [found, first] = graphs_.insert({{rows, wanted, blocks}, nullptr});
  if (first) {
    work();  // the first time as it is: kernels that the driver has yet to load cannot all be captured
  } else {
    if (found->second == nullptr) found->second = capture(stream_, work);
    ASSAY_CUDA(cudaGraphLaunch(found->second, stream_.get()));
  }
  stream_.download(pass.logits, logits_.data(), times(wanted, config_.vocabulary));
  stream_.download(pass.greedy, greedy_.data(), static_cast<size_t>(wanted));
}

void Forward::run(const Pass& pass) {
  const int rows = static_cast<int>(pass.tokens.size()), wanted = static_cast<int>(pass.wanted.size());
  const Attention attention = plan(pass);
  stream_.upload(inputs_.data(), host_inputs_.data(), 1);
  if (state_.any()) plan_delta(pass);
  if (rows <= kMostDecodeRows) {
    run_decode(pass, attention);
  } else {
    if (!attention.alone) stream_.upload(tiles_.data(), host_tiles_.data(), static_cast<size_t>(attention.tiles));
    layers(rows, attention);
    for (int first = 0; first < wanted; first += kMostLogitRows) {
      const int count = std::min(kMostLogitRows, wanted - first);
      logits(first, count);
      stream_.download(pass.logits + times(first, config_.vocabulary), logits_.data(),
                       times(count, config_.vocabulary));
      stream_.download(pass.greedy + first, greedy_.data(), static_cast<size_t>(count));
    }
  }
  stream_.wait();
}

}  // namespace assay::cuda
