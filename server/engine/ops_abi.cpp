// assay_ops.h: packs what a test gives and calls one operation of one backend.
#include <vector>

#include "assay_ops.h"
#include "border.h"
#include "isa.h"
#include "mapping.h"

namespace {

using namespace assay;

struct PackedCopy {
  PackedCopy(uint32_t type, float factor, const uint8_t* source, int rows, int columns) {
    if (rows < 1 || columns < kBlock || columns % kBlock != 0) bad_argument("a matrix without rows or whole blocks");
    matrix.type = static_cast<TensorType>(type);
    // An unknown type is refused here.
    if (static_cast<uint32_t>(columns) % traits(matrix.type).block_values != 0) bad_argument("a row ends in a block");
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.panel_bytes = block_bytes(matrix.type) * static_cast<size_t>(matrix.blocks());
    matrix.group_bytes = matrix.panel_bytes;
    pages = Pages(matrix.panel_bytes * static_cast<size_t>(matrix.panels()));
    matrix.base = pages.data();
    for (int index = 0; index < matrix.panels(); ++index) {
      pack_panel(matrix.type, source, rows, columns, index,
                 pages.data() + static_cast<size_t>(index) * matrix.panel_bytes, factor);
    }
  }

  Packed matrix;
  Pages pages;
};

template <typename Body>
int32_t with_ops(const char* isa, const Body& body) {
  return guarded(nullptr, 0, [&] { body(select_ops(isa)); });
}

KvType kv_type(int32_t type) {
  if (type < 0 || type > 2) bad_argument("no such type of keys and values");
  return static_cast<KvType>(type);
}

// The blocks of one key/value head, one after the other.
void write_blocks(const Ops& ops, KvType type, const float* keys, const float* values, int head_dim, int positions,
                  uint8_t* blocks) {
  if (type == KvType::q4 && head_dim % kKvGroup != 0) {
    bad_argument("keys and values at 4 bits of heads that are no multiple of 32");
  }
  for (int position = 0; position < positions; ++position) {
    const size_t at = static_cast<size_t>(position) * static_cast<size_t>(head_dim);
    const size_t block = static_cast<size_t>(position / kPositionBlock);
    ops.kv_write(keys + at, values + at, head_dim, type, position % kPositionBlock,
                 blocks + block * kv_block_bytes(type, head_dim));
  }
}

}  // namespace

int32_t assay_op_embed(const char* isa, uint32_t type, float factor, const uint8_t* table, int32_t rows,
                       int32_t columns, int32_t token, float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    ops.embed(PackedCopy(type, factor, table, rows, columns).matrix, token, out);
  });
}

int32_t assay_op_rmsnorm(const char* isa, const float* x, const float* weight, int32_t n, float epsilon, float* out) {
  return with_ops(isa, [&](const Ops& ops) { ops.rmsnorm(x, weight, n, epsilon, out); });
}

int32_t assay_op_quantise(const char* isa, const float* x, int32_t n, int8_t* q, float* scale, float* sum,
                          int32_t* refined, int32_t refinements) {
  return with_ops(isa, [&](const Ops& ops) { ops.quantise(x, n, {q, scale, sum, refined, refinements}); });
}

int32_t assay_op_qlinear(const char* isa, int32_t form, uint32_t type, float factor, const uint8_t* weights,
                         int32_t rows, int32_t columns, const float* x, int32_t count, int32_t refinements, int32_t add,
                         float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    const PackedCopy copy(type, factor, weights, rows, columns);
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

int32_t assay_op_key_lane(const char* isa, int32_t* lane) {
  return with_ops(isa, [&](const Ops& ops) { *lane = ops.key_lane; });
}

int32_t assay_op_kv_write(const char* isa, int32_t type, const float* keys, const float* values, int32_t head_dim,
                          int32_t positions, uint8_t* blocks) {
  return with_ops(isa, [&](const Ops& ops) {
    write_blocks(ops, kv_type(type), keys, values, head_dim, positions, blocks);
  });
}

int32_t assay_op_attention(const char* isa, int32_t form, int32_t type, const float* q, const int32_t* visible,
                           int32_t count, int32_t head_dim, const float* keys, const float* values, int32_t positions,
                           float* out) {
  return with_ops(isa, [&](const Ops& ops) {
    if (count < 1 || count > ops.most_queries || head_dim < 8 || head_dim > kMostHeadDim || head_dim % 8 != 0) {
      bad_argument("a tile of queries that this backend does not take");
    }
    const KvType kind = kv_type(type);
    const size_t width = static_cast<size_t>(head_dim);
    const size_t block_bytes = kv_block_bytes(kind, head_dim);
    const size_t block_count = static_cast<size_t>((positions + kPositionBlock - 1) / kPositionBlock);
    const Pages pages(block_count * block_bytes);
    write_blocks(ops, kind, keys, values, head_dim, positions, pages.data());
    std::vector<const uint8_t*> blocks;
    for (size_t index = 0; index < block_count; ++index) blocks.push_back(pages.data() + index * block_bytes);
    std::vector<float> mixed(q, q + static_cast<size_t>(count) * width);
    for (size_t i = 0; kind == KvType::q4 && i < mixed.size(); i += width) mix_head(mixed.data() + i, head_dim);
    if (form != 0) {
      float* outputs[kMostQueries];
      for (int i = 0; i < count; ++i) outputs[i] = out + static_cast<size_t>(i) * width;
      ops.attention_prefill({mixed.data(), visible, count, head_dim, kind}, blocks.data(), outputs);
      return;
    }
    std::vector<float> partials;
    for (int i = 0; i < count; ++i) {
      const int seen = (visible[i] + kPositionBlock - 1) / kPositionBlock;
      partials.assign(static_cast<size_t>(seen) * partial_floats(head_dim), 0.0f);
      const Queries query{mixed.data() + static_cast<size_t>(i) * width, visible + i, 1, head_dim, kind};
      for (int block = 0; block < seen; ++block) {
        float* partial = partials.data() + static_cast<size_t>(block) * partial_floats(head_dim);
        ops.attention_decode(query, blocks[static_cast<size_t>(block)], nullptr, block * kPositionBlock, partial,
                             partial_floats(head_dim));
      }
      ops.attention_fold(partials.data(), seen, head_dim, out + static_cast<size_t>(i) * width);
    }
  });
}

int32_t assay_op_silu_mul(const char* isa, const float* gate, const float* up, int32_t n, float* out) {
  return with_ops(isa, [&](const Ops& ops) { ops.silu_mul(gate, up, n, out); });
}

int32_t assay_op_argmax(const char* isa, const float* x, int32_t n, int32_t* index) {
  return with_ops(isa, [&](const Ops& ops) { *index = ops.argmax(x, n); });
}
