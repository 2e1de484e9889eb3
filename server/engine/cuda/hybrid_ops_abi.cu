// assay_hybrid_ops.h: copies what a test gives to the device and runs one operation there.
#include "../assay_hybrid_ops.h"

#include <algorithm>
#include <vector>

#include "delta.cuh"
#include "op_bench.cuh"

using namespace assay;
using namespace assay::cuda;

namespace {

constexpr int kSlot = 1;  // of two: not the one that begins the memory

// A pass of one segment.
struct OnePass {
  OnePass(const Bench& bench, int position, int count, int base)
      : segments(1), segment_of(bench.zeros<int32_t>(size_of(count))), segment_count(1) {
    const DeltaSegment segment{kSlot, 0, count, position, base};
    const int32_t one = 1;
    segments = bench.given(&segment, 1);
    segment_count = bench.given(&one, 1);
    pass = {segment_of.data(), segments.data(), segment_count.data(), count, std::min(count, 2)};
  }

  DeltaPass pass;
  DeviceArray<DeltaSegment> segments;
  DeviceArray<int32_t> segment_of;
  DeviceArray<int32_t> segment_count;
};

// A layer of two slots.
struct OneLayer {
  OneLayer(const Bench& bench, const DeltaShape& shape, bool grouped)
      : slots(bench.zeros<float>(2 * static_cast<size_t>(DeltaSlot(shape).floats))),
        view(shape, grouped, slots.data(), DeltaSlot(shape).floats) {}

  DeviceArray<float> slots;
  DeltaView view;
};

// Room for values without a quantised form.
Activations floats(const DeviceArray<float>& x, int columns) {
  Activations activations;
  activations.x = x.data();
  activations.rows = 1;
  activations.stride = 2;
  activations.columns = columns;
  return activations;
}

}  // namespace

int32_t assay_op_head(const char* isa, int32_t style, float* head, int32_t head_dim, const float* norm, float epsilon,
                      int32_t rope_dim, const float* cosine, const float* sine) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeviceArray<float> given = bench.given(head, size_of(head_dim));
    const DeviceArray<float> weight = bench.given(norm == nullptr ? head : norm, size_of(head_dim));
    const DeviceArray<float> cosines = bench.given(cosine, size_of(rope_dim / 2));
    const DeviceArray<float> sines = bench.given(sine, size_of(rope_dim / 2));
    const int32_t first = 1;
    const DeviceArray<int32_t> visible = bench.given(&first, 1);
    KvView nowhere;
    nowhere.layout.head_dim = head_dim;
    nowhere.visible = visible.data();
    const HeadShape shape{1, 0, head_dim, rope_dim, head_dim, style != 0};
    const HeadNorms norms{norm == nullptr ? nullptr : weight.data(), nullptr, epsilon};
    place_heads(given.data(), 1, shape, norms, cosines.data(), sines.data(), nowhere, bench.stream());
    bench.take(head, given);
  });
}

int32_t assay_op_sigmoid_mul(const char* isa, const float* x, const float* gate, int32_t n, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeviceArray<float> values = bench.given(x, size_of(n)), gates = bench.given(gate, size_of(n));
    const DeviceArray<float> result = bench.zeros<float>(size_of(n));
    sigmoid_mul(values.data(), n, gates.data(), n, 0, floats(result, n), bench.stream());
    bench.take(out, result);
  });
}

int32_t assay_op_conv1d(const char* isa, const float* x, const float* weight, int32_t rows, int32_t channels,
                        int32_t conv, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    if (rows < 1 || channels < 1 || conv < 1) bad_argument("a convolution of nothing");
    // The rows in front are what the slot has kept of positions before.
    const DeltaShape shape{0, 1, 0, channels, conv};
    const OneLayer layer(bench, shape, false);
    const DeviceArray<float> given = bench.given(x, size_of(conv - 1 + rows) * size_of(channels));
    std::vector<float> turned(size_of(channels) * size_of(conv));
    for (size_t i = 0; i < turned.size(); ++i) {
      turned[i % size_of(conv) * size_of(channels) + i / size_of(conv)] = weight[i];
    }
    const DeviceArray<float> weights = bench.given(turned.data(), turned.size());
    const DeviceArray<float> result = bench.zeros<float>(size_of(rows) * size_of(channels));
    const int position = 2 * kDeltaChunk + 5;
    if (conv > 1) {
      const OnePass before(bench, position - (conv - 1), conv - 1, 2 * kDeltaChunk);
      delta_keep(given.data(), channels, given.data(), layer.view, before.pass, bench.stream());
      const DeviceArray<float> unused = bench.zeros<float>(size_of(channels));
      bench.take(out, unused);  // the pass is read until here
    }
    const OnePass pass(bench, position, rows, 2 * kDeltaChunk);
    conv1d(given.data() + size_of(conv - 1) * size_of(channels), channels, weights.data(), layer.view, pass.pass,
           result.data(), bench.stream());
    bench.take(out, result);
  });
}

int32_t assay_op_delta(const char* isa, int32_t key_heads, int32_t value_heads, int32_t key_dim, int32_t value_dim,
                       int32_t grouped, const float* qkv, const float* a, const float* b, const float* decay,
                       const float* dt, int32_t rows, const int32_t* cuts, int32_t cut_count, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeltaShape shape{key_heads, value_heads, key_dim, value_dim, 1};
    const size_t channels = size_of(shape.width()), heads = size_of(value_heads), width = size_of(shape.value_width());
    const OneLayer layer(bench, shape, grouped != 0);
    const DeviceArray<float> x = bench.given(qkv, size_of(rows) * channels);
    const DeviceArray<float> as = bench.given(a, size_of(rows) * heads), bs = bench.given(b, size_of(rows) * heads);
    const DeviceArray<float> decays = bench.given(decay, heads), dts = bench.given(dt, heads);
    const DeviceArray<float2> gates = bench.zeros<float2>(size_of(rows) * heads);
    const DeviceArray<float> result = bench.zeros<float>(size_of(rows) * width);
    delta_inputs(x.data(), as.data(), bs.data(), value_heads, decays.data(), dts.data(), layer.view, rows, gates.data(),
                 bench.stream());
    int position = 0, base = 0;
    for (int i = 0; i < cut_count; ++i) {
      if (cuts[i] < 1 || cuts[i] > rows - position) bad_argument("cuts that are not the rows");
      const OnePass pass(bench, position, cuts[i], base);
      const float* part = x.data() + size_of(position) * channels;
      delta(part, gates.data() + size_of(position) * heads, layer.view, pass.pass,
            result.data() + size_of(position) * width, bench.stream());
      delta_keep(part, shape.width(), part, layer.view, pass.pass, bench.stream());
      position += cuts[i];
      base = (position - 1) / kDeltaChunk * kDeltaChunk;
      bench.take(out, result);  // the pass is read until here
    }
    if (position != rows) bad_argument("cuts that are not the rows");
  });
}

int32_t assay_op_gated_norm(const char* isa, const float* x, const float* weight, const float* gate, int32_t heads,
                            int32_t head_dim, float epsilon, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const int n = heads * head_dim;
    const DeviceArray<float> values = bench.given(x, size_of(n)), gates = bench.given(gate, size_of(n));
    const DeviceArray<float> weights = bench.given(weight, size_of(head_dim));
    const DeviceArray<float> result = bench.zeros<float>(size_of(n));
    gated_norm(values.data(), n, weights.data(), epsilon, head_dim, gates.data(), n, 0, floats(result, n),
               bench.stream());
    bench.take(out, result);
  });
}
