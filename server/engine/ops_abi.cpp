// assay_ops.h: packs what a test gives and calls one operation of one backend.
#include <vector>

#include "assay_ops.h"
#include "border.h"
#include "isa.h"
#include "mapping.h"

namespace {

using namespace assay;

struct PackedCopy {
  PackedCopy(uint32_t type, const uint8_t* source, int rows, int columns) {
    if (rows < 1 || columns < kBlock || columns % kBlock != 0) bad_argument("a matrix without rows or whole blocks");
    matrix.type = static_cast<TensorType>(type);
    traits(matrix.type);  // an unknown type is refused here
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.panel_bytes = block_bytes(matrix.type) * static_cast<size_t>(matrix.blocks());
    matrix.group_bytes = matrix.panel_bytes;
    pages = Pages(matrix.panel_bytes * static_cast<size_t>(matrix.panels()));
    matrix.base = pages.data();
    for (int index = 0; index < matrix.panels(); ++index) {
      pack_panel(matrix.type, source, rows, columns, index,
                 pages.data() + static_cast<size_t>(index) * matrix.panel_bytes);
    }
  }

  Packed matrix;
  Pages pages;
};

template <typename Body>
int32_t with_ops(const char* isa, const Body& body) {
  return guarded(nullptr, 0, [&] { body(select_ops(isa)); });
}

void write_cache(const Ops& ops, const float* keys, const float* values, int head_dim, int positions,
                 const KvHead& head) {
  for (int position = 0; position < positions; ++position) {
    const size_t at = static_cast<size_t>(position) * static_cast<size_t>(head_dim);
    ops.kv_write(keys + at, values + at, head_dim, position, head);
  }
}

size_t cache_halves(int positions, int head_dim) {
  const int blocks = (positions + kPositionBlock - 1) / kPositionBlock;
  return static_cast<size_t>(blocks) * kPositionBlock * static_cast<size_t>(head_dim);
}

}  // namespace

int32_t assay_op_embed(const char* isa, uint32_t type, const uint8_t* table, int32_t rows, int32_t columns,
                       int32_t token, float* out) {
  return with_ops(isa, [&](const Ops& ops) { ops.embed(PackedCopy(type, table, rows, columns).matrix, token, out); });
}

int32_t assay_op_rmsnorm(const char* isa, const float* x, const float* weight, int32_t n, float epsilon, float* out) {
  return with_ops(isa, [&](const Ops& ops) { ops.rmsnorm(x, weight, n, epsilon, out); });
}

int32_t assay_op_quantise(const char* isa, const float* x, int32_t n, int8_t* q, float* scale, float* sum,
                          int32_t* refined, int32_t refinements) {
  return with_ops(isa, [&](const Ops& ops) { ops.quantise(x, n, {q, scale, sum, refined, refinements}); });
}

int32_t assay_op_qlinear(const char* isa, int32_t form, uint32_t type, const uint8_t* weights, int32_t rows,
                         int32_t columns, const float* x, int32_t count, int32_t refinements, int32_t add, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    const PackedCopy copy(type, weights, rows, columns);
    const Packed& matrix = copy.matrix;
    const size_t stored = static_cast<size_t>(matrix.blocks() + refinements);
    const size_t extra = static_cast<size_t>(refinements);
    const size_t row_count = static_cast<size_t>(count);
    std::vector<int8_t> q(row_count * stored * kBlock);
    std::vector<float> scale(row_count * stored), sum(row_count * stored);
    std::vector<int32_t> refined(row_count * extra);
    for (size_t row = 0; row < row_count; ++row) {
      ops.quantise(x + row * static_cast<size_t>(columns), columns,
                   {q.data() + row * stored * kBlock, scale.data() + row * stored, sum.data() + row * stored,
                    refined.data() + row * extra, refinements});
    }
    const Rows activations{x, q.data(), scale.data(), sum.data(), refined.data(), refinements, count};
    const Output output{out, static_cast<size_t>(rows), add != 0};
    if (form == 0) {
      ops.qlinear_decode(matrix, 0, matrix.panels(), activations, output);
    } else {
      const Pages scratch(unpacked_bytes(columns));
      ops.qlinear_prefill(matrix, 0, matrix.panels(), activations, output, scratch.data());
    }
  });
}

int32_t assay_op_rope(const char* isa, float* head, int32_t rope_dim, const float* cosine, const float* sine) {
  return with_ops(isa, [&](const Ops& ops) { ops.rope(head, rope_dim, cosine, sine); });
}

int32_t assay_op_kv_write(const char* isa, const float* keys, const float* values, int32_t head_dim, int32_t positions,
                          uint16_t* key_cache, uint16_t* value_cache) {
  return with_ops(
      isa, [&](const Ops& ops) { write_cache(ops, keys, values, head_dim, positions, {key_cache, value_cache}); });
}

int32_t assay_op_attention(const char* isa, int32_t form, const float* q, const int32_t* visible, int32_t count,
                           int32_t head_dim, const float* keys, const float* values, int32_t positions, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    if (count < 1 || count > kMostQueries || head_dim < 8 || head_dim > kMostHeadDim || head_dim % 8 != 0) {
      bad_argument("a tile of queries that no backend takes");
    }
    const size_t width = static_cast<size_t>(head_dim);
    std::vector<uint16_t> cache(2 * cache_halves(positions, head_dim));
    const KvHead head{cache.data(), cache.data() + cache.size() / 2};
    write_cache(ops, keys, values, head_dim, positions, head);
    if (form != 0) {
      float* outputs[kMostQueries];
      for (int i = 0; i < count; ++i) outputs[i] = out + static_cast<size_t>(i) * width;
      ops.attention_prefill({q, visible, count, head_dim}, head, outputs);
      return;
    }
    std::vector<float> partials;
    for (int i = 0; i < count; ++i) {
      const int blocks = (visible[i] + kPositionBlock - 1) / kPositionBlock;
      partials.assign(static_cast<size_t>(blocks) * partial_floats(head_dim), 0.0f);
      const Queries query{q + static_cast<size_t>(i) * width, visible + i, 1, head_dim};
      for (int block = 0; block < blocks; ++block) {
        float* partial = partials.data() + static_cast<size_t>(block) * partial_floats(head_dim);
        ops.attention_decode(query, head, block, partial, partial_floats(head_dim));
      }
      ops.attention_fold(partials.data(), blocks, head_dim, out + static_cast<size_t>(i) * width);
    }
  });
}

int32_t assay_op_silu_mul(const char* isa, const float* gate, const float* up, int32_t n, float* out) {
  return with_ops(isa, [&](const Ops& ops) { ops.silu_mul(gate, up, n, out); });
}

int32_t assay_op_argmax(const char* isa, const float* x, int32_t n, int32_t* index) {
  return with_ops(isa, [&](const Ops& ops) { *index = ops.argmax(x, n); });
}
