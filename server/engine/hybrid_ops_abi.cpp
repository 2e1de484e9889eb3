// assay_hybrid_ops.h on the CPU: arranges what a test gives and calls the operations of one backend.
#include <algorithm>
#include <cmath>
#include <vector>

#include "assay_hybrid_ops.h"
#include "border.h"
#include "delta_cache.h"
#include "isa.h"
#include "pass_buffers.h"

namespace {

using namespace assay;

template <typename Body>
int32_t with_ops(const char* isa, const Body& body) {
  return guarded(nullptr, 0, [&] { body(select_ops(isa)); });
}

// A model of one layer of the gated delta rule, whose rows come from a test.
Config one_layer(int key_heads, int value_heads, int key_dim, int value_dim, bool grouped) {
  Config config{};
  config.kinds = {LayerKind::delta};
  config.delta = {key_heads, value_heads, key_dim, value_dim, 2};
  config.raw = grouped;
  return config;
}

// Norms queries and keys of rows, in place.
void norm_heads(const Ops& ops, const DeltaShape& shape, int rows, float* qkv) {
  const size_t dim = static_cast<size_t>(shape.key_dim);
  const float size = static_cast<float>(shape.key_dim);
  const std::vector<float> query(dim, 1.0f / size), key(dim, 1.0f / std::sqrt(size));
  for (int row = 0; row < rows; ++row) {
    for (int head = 0; head < 2 * shape.key_heads; ++head) {
      float* x = qkv + static_cast<size_t>(row * shape.width() + head * shape.key_dim);
      ops.rmsnorm(x, head < shape.key_heads ? query.data() : key.data(), shape.key_dim, kDeltaEpsilon / size, x);
    }
  }
}

}  // namespace

int32_t assay_op_head(const char* isa, int32_t style, float* head, int32_t head_dim, const float* norm, float epsilon,
                      int32_t rope_dim, const float* cosine, const float* sine) {
  return with_ops(isa, [&](const Ops& ops) {
    if (norm != nullptr) ops.rmsnorm(head, norm, head_dim, epsilon, head);
    (style == 0 ? ops.rope : ops.rope_halves)(head, rope_dim, cosine, sine);
  });
}

int32_t assay_op_sigmoid_mul(const char* isa, const float* x, const float* gate, int32_t n, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    std::copy_n(x, n, out);
    ops.sigmoid_mul(gate, n, out);
  });
}

int32_t assay_op_conv1d(const char* isa, const float* x, const float* weight, int32_t rows, int32_t channels,
                        int32_t conv, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    const size_t width = static_cast<size_t>(channels), taps = static_cast<size_t>(conv);
    std::vector<float> weights(taps * width);
    for (size_t channel = 0; channel < width; ++channel) {
      for (size_t tap = 0; tap < taps; ++tap) weights[tap * width + channel] = weight[channel * taps + tap];
    }
    std::vector<const float*> seen(taps);
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      for (size_t tap = 0; tap < taps; ++tap) seen[tap] = x + (row + tap) * width;
      ops.conv1d(seen.data(), weights.data(), width, conv, channels, out + row * width);
    }
  });
}

int32_t assay_op_delta(const char* isa, int32_t key_heads, int32_t value_heads, int32_t key_dim, int32_t value_dim,
                       int32_t grouped, const float* qkv, const float* a, const float* b, const float* decay,
                       const float* dt, int32_t rows, const int32_t* cuts, int32_t cut_count, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    const Config config = one_layer(key_heads, value_heads, key_dim, value_dim, grouped != 0);
    const DeltaShape& shape = config.delta;
    const size_t width = static_cast<size_t>(shape.width()), heads = static_cast<size_t>(value_heads);
    std::vector<float> given(qkv, qkv + static_cast<size_t>(rows) * width);
    norm_heads(ops, shape, rows, given.data());
    std::vector<float> log_decay(static_cast<size_t>(rows) * heads), learned(log_decay.size());
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      ops.delta_gates(a + row * heads, b + row * heads, decay, dt, value_heads, log_decay.data() + row * heads,
                      learned.data() + row * heads);
    }
    DeltaCache cache(config, 1);
    int row = 0;
    for (int cut = 0; cut < cut_count; ++cut) {
      for (int key_head = 0; key_head < key_heads; ++key_head) {
        const size_t at = static_cast<size_t>(row);
        const float* query = given.data() + at * width + key_head * key_dim;
        const DeltaRows part{query, query + shape.key_width(), given.data() + at * width + 2 * shape.key_width(),
                             log_decay.data() + at * heads, learned.data() + at * heads,
                             out + at * static_cast<size_t>(shape.value_width()), width, heads,
                             static_cast<size_t>(shape.value_width()), cuts[cut], 0, config.first_value_head(key_head),
                             config.value_head_step()};
        advance_delta(ops, part, row, cache.span(0).base, cache.chunk(0, 0, key_head));
      }
      cache.write(0, cuts[cut]);
      row += cuts[cut];
    }
  });
}

int32_t assay_op_gated_norm(const char* isa, const float* x, const float* weight, const float* gate, int32_t heads,
                            int32_t head_dim, float epsilon, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    for (int32_t head = 0; head < heads; ++head) {
      const size_t at = static_cast<size_t>(head) * static_cast<size_t>(head_dim);
      ops.rmsnorm(x + at, weight, head_dim, epsilon, out + at);
      ops.silu_mul(gate + at, out + at, head_dim, out + at);
    }
  });
}
