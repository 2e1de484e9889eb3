// assay_ops.h and the operation of assay_cuda.cuh: copies what a test gives to the device and runs one operation there.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../assay_ops.h"
#include "assay_cuda.cuh"
#include "kernels.cuh"
#include "op_bench.cuh"

namespace assay::cuda {
namespace {

struct PackedCopy {
  PackedCopy(const Bench& bench, uint32_t type, float factor, const uint8_t* source, int rows, int columns) {
    matrix.type = static_cast<TensorType>(type);
    const TypeTraits form = traits(matrix.type);  // an unknown type is refused here
    if (rows < 1 || columns < kBlock || columns % group_columns(matrix.type) != 0) {
      bad_argument("a matrix without rows or whole blocks");
    }
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.factor = factor;
    const size_t source_bytes = size_of(columns) / form.block_values * form.block_bytes * size_of(rows);
    const DeviceArray<uint8_t> raw = bench.given(source, source_bytes);
    data = bench.zeros<uint8_t>(packed_bytes(matrix.type, rows, columns));
    pack(matrix.type, raw.data(), rows, columns, 0, data.data(), bench.stream());
    matrix.data = data.data();
  }

  Matrix matrix;
  DeviceArray<uint8_t> data;
};

// Room for activations; `floats` and `blocks` say which forms are wanted.
struct ActivationRoom {
  ActivationRoom(const Bench& bench, int rows, int columns, bool floats, bool blocks) {
    activations.rows = rows;
    activations.stride = (rows + 1) / 2 * 2;
    activations.columns = columns;
    if (floats) {
      x = bench.zeros<float>(size_of(rows) * size_of(columns));
      activations.x = x.data();
    }
    if (!blocks) return;
    const size_t count = size_of(activations.stride) * size_of(columns / kBlock);
    q = bench.zeros<uint4>(2 * count);
    residual = bench.zeros<uint4>(2 * count);
    scale = bench.zeros<float2>(count);
    activations.q = q.data();
    activations.residual = residual.data();
    activations.scale = scale.data();
  }

  Activations activations;
  DeviceArray<float> x;
  DeviceArray<uint4> q, residual;
  DeviceArray<float2> scale;
};

KvType kv_type(int32_t type) {
  if (type < 0 || type > 2) bad_argument("no such type of keys and values");
  return static_cast<KvType>(type);
}

// A cache of one layer and head, with the positions given written one a row.
struct FilledCache {
  FilledCache(const Bench& bench, KvType type, const float* keys, const float* values, int head_dim, int positions) {
    if (head_dim < 8 || head_dim > kMostHeadDim || head_dim % 8 != 0 || positions < 1) {
      bad_argument("keys and values of a shape that no model has");
    }
    if (type == KvType::q4 && head_dim % kKvGroup != 0) {
      bad_argument("keys and values at 4 bits of heads that are no multiple of 32");
    }
    const KvLayout layout{type, head_dim};
    blocks = (positions + kPositionBlock - 1) / kPositionBlock;
    pool = bench.zeros<uint8_t>(size_of(blocks) * size_of(layout.head_bytes()));
    std::vector<int32_t> order(size_of(blocks)), slots(size_of(positions), 0), visible(size_of(positions));
    for (int i = 0; i < blocks; ++i) order[size_of(i)] = blocks - 1 - i;  // not the order they lie in
    for (int i = 0; i < positions; ++i) visible[size_of(i)] = i + 1;
    table = bench.given(order.data(), order.size());
    const DeviceArray<int32_t> row_slots = bench.given(slots.data(), slots.size());
    const DeviceArray<int32_t> row_visible = bench.given(visible.data(), visible.size());
    std::vector<float> rows(size_of(positions) * size_of(2 * head_dim));
    for (int i = 0; i < positions; ++i) {
      float* row = rows.data() + size_of(i) * size_of(2 * head_dim);
      std::copy_n(keys + size_of(i) * size_of(head_dim), head_dim, row);
      std::copy_n(values + size_of(i) * size_of(head_dim), head_dim, row + head_dim);
    }
    const DeviceArray<float> given = bench.given(rows.data(), rows.size());
    view = {layout, pool.data(), layout.head_bytes(), 0, table.data(), blocks, row_slots.data(), row_visible.data()};
    const HeadShape shape{0, 1, head_dim, 0, 2 * head_dim};
    place_heads(given.data(), positions, shape, {}, given.data(), given.data(), view, bench.stream());
    std::vector<uint8_t> unused(1);
    bench.take(unused.data(), bench.zeros<uint8_t>(1));  // the rows' arrays are read until here
  }

  int blocks;
  DeviceArray<uint8_t> pool;
  DeviceArray<int32_t> table;
  KvView view;
};

// The same at 4 bits.
void unpack_groups(const KvLayout& layout, const uint8_t* block, uint8_t* out) {
  const int width = layout.head_dim, groups = width / kKvGroup, half = kKvGroup / 2;
  const auto key = [&](int position, int d) {
    const uint8_t pair = block[layout.key_byte(position, d)];
    return d / 2 % 2 == 0 ? pair & 15 : pair >> 4;
  };
  const auto value = [&](int position, int d) {
    const uint8_t pair = block[layout.value_offset() + layout.value_byte(position, d)];
    return d / 8 % 2 == 0 ? pair & 15 : pair >> 4;
  };
  uint8_t* keys = out;
  uint8_t* values = out + kPositionBlock * width / 2;
  uint16_t* key_scales = reinterpret_cast<uint16_t*>(out + kPositionBlock * width);
  uint16_t* value_scales = key_scales + groups * 2 * kPositionBlock;
  const uint16_t* keys_given = reinterpret_cast<const uint16_t*>(block + layout.scale_offset());
  const uint16_t* values_given = keys_given + groups * 2 * kPositionBlock;
  for (int position = 0; position < kPositionBlock; ++position) {
    for (int g = 0; g < groups; ++g) {
      for (int i = 0; i < half; ++i) {
        const int d = g * kKvGroup + i, pair = g * kKvGroup + 2 * i;
        *keys++ = static_cast<uint8_t>(key(position, pair) | key(position, pair + 1) << 4);
        *values++ = static_cast<uint8_t>(value(position, d) | value(position, d + half) << 4);
      }
      for (int part = 0; part < 2; ++part) {
        const int from = (g * kPositionBlock + position) * 2 + part;
        key_scales[(g * 2 + part) * kPositionBlock + position] = keys_given[from];
        value_scales[(position * groups + g) * 2 + part] = values_given[from];
      }
    }
  }
}

// A block as the header of ops.h has it, with keys not interleaved.
void unpack_block(const KvLayout& layout, const uint8_t* block, uint8_t* out) {
  if (layout.type == KvType::q4) return unpack_groups(layout, block, out);
  const size_t item = size_of(layout.bytes_of(1)), width = size_of(layout.head_dim);
  uint8_t* const values = out + kPositionBlock * width * item;
  for (int position = 0; position < kPositionBlock; ++position) {
    std::memcpy(out + size_of(position) * width * item, block + size_of(position * layout.padded()) * item,
                width * item);
    for (int d = 0; d < layout.head_dim; ++d) {
      const size_t from = size_of(layout.value_offset()) + size_of(layout.value_index(position, d)) * item;
      std::memcpy(values + (size_of(position) * width + size_of(d)) * item, block + from, item);
    }
  }
  std::memcpy(values + kPositionBlock * width * item, block + layout.scale_offset(),
              size_of(layout.head_bytes() - layout.scale_offset()));
}

}  // namespace
}  // namespace assay::cuda

using namespace assay;
using namespace assay::cuda;

int32_t assay_op_embed(const char* isa, uint32_t type, float factor, const uint8_t* table, int32_t rows,
                       int32_t columns, int32_t token, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const PackedCopy copy(bench, type, factor, table, rows, columns);
    const DeviceArray<int32_t> tokens = bench.given(&token, 1);
    const DeviceArray<float> row = bench.zeros<float>(size_of(columns));
    embed(copy.matrix, tokens.data(), 1, row.data(), bench.stream());
    bench.take(out, row);
  });
}

int32_t assay_op_rmsnorm(const char* isa, const float* x, const float* weight, int32_t n, float epsilon, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeviceArray<float> given = bench.given(x, size_of(n)), weights = bench.given(weight, size_of(n));
    const ActivationRoom room(bench, 1, n, true, false);
    rmsnorm(given.data(), n, nullptr, weights.data(), epsilon, 0, room.activations, bench.stream());
    bench.take(out, room.x);
  });
}

int32_t assay_op_quantise(const char* isa, const float* x, int32_t n, int8_t* q, float* scale, float* sum,
                          int32_t* refined, int32_t refinements) {
  return with_bench(isa, [&](const Bench& bench) {
    const size_t blocks = size_of(n / kBlock);
    const DeviceArray<float> given = bench.given(x, size_of(n));
    const ActivationRoom room(bench, 1, n, false, true);
    quantise(given.data(), n, refinements, room.activations, bench.stream());
    std::vector<uint4> integers(room.q.count()), residuals(room.residual.count());
    std::vector<float2> scales(room.scale.count());
    bench.take(integers.data(), room.q);
    bench.take(residuals.data(), room.residual);
    bench.take(scales.data(), room.scale);
    size_t extra = 0;
    for (size_t block = 0; block < blocks; ++block) {
      const size_t stride = size_of(room.activations.stride);
      const float2 stored = scales[block * stride];
      std::memcpy(q + block * kBlock, &integers[block * stride * 2], kBlock);
      scale[block] = std::fabs(stored.x);
      sum[block] = stored.y;
      if (!std::signbit(stored.x)) continue;
      if (extra == size_of(refinements)) throw Error(ASSAY_INTERNAL, "more blocks are refined than were asked for");
      std::memcpy(q + (blocks + extra) * kBlock, &residuals[block * stride * 2], kBlock);
      scale[blocks + extra] = std::fabs(stored.x) * 0x1p-8f;
      sum[blocks + extra] = 0.0f;
      refined[extra++] = static_cast<int32_t>(block);
    }
    if (extra != size_of(refinements)) throw Error(ASSAY_INTERNAL, "fewer blocks are refined than were asked for");
  });
}

int32_t assay_op_qlinear(const char* isa, int32_t form, uint32_t type, float factor, const uint8_t* weights,
                         int32_t rows, int32_t columns, const float* x, int32_t count, int32_t refinements, int32_t add,
                         float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const PackedCopy copy(bench, type, factor, weights, rows, columns);
    const DeviceArray<float> given = bench.given(x, size_of(count) * size_of(columns));
    const ActivationRoom room(bench, count, columns, true, true);
    quantise(given.data(), columns, refinements, room.activations, bench.stream());
    const DeviceArray<float> result = bench.given(out, size_of(count) * size_of(rows));
    const auto multiply = form == 0 ? qlinear_decode : qlinear_prefill;
    multiply(copy.matrix, room.activations, result.data(), rows, add != 0, bench.stream());
    bench.take(out, result);
  });
}

int32_t assay_op_rope(const char* isa, float* head, int32_t rope_dim, const float* cosine, const float* sine) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeviceArray<float> given = bench.given(head, size_of(rope_dim));
    const DeviceArray<float> cosines = bench.given(cosine, size_of(rope_dim / 2));
    const DeviceArray<float> sines = bench.given(sine, size_of(rope_dim / 2));
    const int32_t first = 1;
    const DeviceArray<int32_t> visible = bench.given(&first, 1);
    KvView nowhere;
    nowhere.layout.head_dim = rope_dim;
    nowhere.visible = visible.data();
    const HeadShape shape{1, 0, rope_dim, rope_dim, rope_dim};
    place_heads(given.data(), 1, shape, {}, cosines.data(), sines.data(), nowhere, bench.stream());
    bench.take(head, given);
  });
}

int32_t assay_op_key_lane(const char* isa, int32_t* lane) {
  return with_bench(isa, [&](const Bench&) { *lane = 1; });
}

int32_t assay_op_kv_write(const char* isa, int32_t type, const float* keys, const float* values, int32_t head_dim,
                          int32_t positions, uint8_t* blocks) {
  return with_bench(isa, [&](const Bench& bench) {
    const FilledCache cache(bench, kv_type(type), keys, values, head_dim, positions);
    std::vector<uint8_t> pool(cache.pool.count());
    bench.take(pool.data(), cache.pool);
    const KvLayout& layout = cache.view.layout;
    for (int i = 0; i < cache.blocks; ++i) {
      unpack_block(layout, pool.data() + size_of(cache.blocks - 1 - i) * size_of(layout.head_bytes()),
                   blocks + size_of(i) * kv_block_bytes(layout.type, head_dim));
    }
  });
}

int32_t assay_op_attention(const char* isa, int32_t form, int32_t type, const float* q, const int32_t* visible,
                           int32_t count, int32_t head_dim, const float* keys, const float* values, int32_t positions,
                           float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    if (count < 1) bad_argument("no queries");
    FilledCache cache(bench, kv_type(type), keys, values, head_dim, positions);
    const std::vector<int32_t> slots(size_of(count), 0);
    const DeviceArray<int32_t> row_slots = bench.given(slots.data(), slots.size());
    const DeviceArray<int32_t> row_visible = bench.given(visible, size_of(count));
    cache.view.slots = row_slots.data();
    cache.view.visible = row_visible.data();
    const HeadShape shape{1, 1, head_dim, 0, head_dim};
    const DeviceArray<float> queries = bench.given(q, size_of(count) * size_of(head_dim));
    place_heads(queries.data(), count, {1, 0, head_dim, 0, head_dim}, {}, queries.data(), queries.data(), cache.view,
                bench.stream());  // only mixed, and only where keys are
    const DeviceArray<float> result = bench.zeros<float>(queries.count());
    if (form == 0) {
      const DeviceArray<float> partials =
          bench.zeros<float>(size_of(count) * size_of(cache.blocks) * size_of(head_dim + kPartialTail));
      attention_decode(queries.data(), count, shape, 1.0f, cache.view, cache.blocks, partials.data(), bench.stream());
      attention_fold(partials.data(), row_visible.data(), count, shape, cache.blocks, result.data(), bench.stream());
      bench.take(out, result);
      return;
    }
    std::vector<QueryTile> tiles;
    for (int first = 0; first < count; first += kTileQueries) {
      tiles.push_back({0, first, std::min(kTileQueries, count - first)});
    }
    const DeviceArray<QueryTile> given = bench.given(tiles.data(), tiles.size());
    attention_prefill(queries.data(), shape, 1.0f, cache.view, given.data(), static_cast<int>(tiles.size()),
                      result.data(), bench.stream());
    bench.take(out, result);
  });
}

int32_t assay_op_silu_mul(const char* isa, const float* gate, const float* up, int32_t n, float* out) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeviceArray<float> gates = bench.given(gate, size_of(n)), ups = bench.given(up, size_of(n));
    const ActivationRoom room(bench, 1, n, true, false);
    silu_mul(gates.data(), ups.data(), n, 0, room.activations, bench.stream());
    bench.take(out, room.x);
  });
}

int32_t assay_op_argmax(const char* isa, const float* x, int32_t n, int32_t* index) {
  return with_bench(isa, [&](const Bench& bench) {
    const DeviceArray<float> given = bench.given(x, size_of(n));
    const DeviceArray<int32_t> found = bench.zeros<int32_t>(1);
    argmax(given.data(), n, 1, found.data(), bench.stream());
    bench.take(index, found);
  });
}

int32_t assay_op_sample(const char* isa, const float* x, int32_t n, int32_t rows, float temperature,
                        const float* uniform, int32_t* index) {
  return with_bench(isa, [&](const Bench& bench) {
    if (n < 1 || rows < 1) bad_argument("no values");
    const DeviceArray<float> given = bench.given(x, size_of(n) * size_of(rows));
    const DeviceArray<float> numbers = bench.given(uniform, size_of(rows));
    const DeviceArray<int32_t> found = bench.zeros<int32_t>(size_of(rows));
    sample(given.data(), n, rows, temperature, numbers.data(), found.data(), bench.stream());
    bench.take(index, found);
  });
}
