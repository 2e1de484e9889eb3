// The operations of the backend: what each takes and does. One file each has the kernels.
//
// All arrays are in device memory, row-major and dense but where a stride is named;
// every call puts its work on `stream` and returns at once. The arithmetic of an
// output is fixed by the shape alone: neither form, batch nor neighbours change a bit.
#pragma once

#include "../kv_layout.h"
#include "../ops.h"
#include "../workspace.h"
#include "packed.cuh"

namespace assay::cuda {

// Activations of `rows` rows in blocks of 32, as ops.h defines them: block by block, so that
// the rows of one block lie together.
struct Activations {
  float* x = nullptr;       // [rows][columns]; for matrices of floats
  uint4* q = nullptr;       // [block][stride][2]: 32 bytes a row
  uint4* residual = nullptr;  // the same; zero where a block is not refined
  float2* scale = nullptr;  // [block][stride]: (scale, sum), the scale negated where the block is refined
  int rows = 0;
  int stride = 0;  // rows, rounded up to an even number
  int columns = 0;
};

// One layer of the cache, and where each row of a pass stands in it.
struct KvView {
  KvLayout layout;
  uint8_t* pool = nullptr;
  int64_t block_bytes = 0;
  int64_t layer_offset = 0;
  const int32_t* tables = nullptr;   // [slot][table_stride]: blocks of the pool
  int table_stride = 0;
  const int32_t* slots = nullptr;    // [row]
  const int32_t* visible = nullptr;  // [row]: positions it sees; it stands at the last of them

  __device__ uint8_t* head(int row, int block, int kv_head) const {
    const int64_t index = tables[static_cast<int64_t>(slots[row]) * table_stride + block];
    return pool + index * block_bytes + layer_offset + static_cast<int64_t>(kv_head) * layout.head_bytes();
  }
};

struct HeadShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rope_dim = 0;
  int stride = 0;  // of a row of queries, then keys, then values
  bool halves = false;  // rope turns i with i + rope_dim / 2, not 2i with 2i + 1
};

// RMSNorm of each query and key head before rope; null: none.
struct HeadNorms {
  const float* query = nullptr;  // [head_dim]
  const float* key = nullptr;
  float epsilon = 0.0f;
};

// out[row][columns] = row tokens[row] of the table.
void embed(const Matrix& table, const int32_t* tokens, int rows, float* out, cudaStream_t stream);

// Rows as activations, `refinements` of their blocks refined; `out` says where, and with null arrays what not.
// Source rows are x + index * stride, the index being `indices[row]` or, without them, the row.
void rmsnorm(const float* x, int stride, const int32_t* indices, const float* weight, float epsilon, int refinements,
             const Activations& out, cudaStream_t stream);
void quantise(const float* x, int stride, int refinements, const Activations& out, cudaStream_t stream);
void silu_mul(const float* gate, const float* up, int stride, int refinements, const Activations& out,
              cudaStream_t stream);
// x / (1 + exp(-gate)).
void sigmoid_mul(const float* x, int stride, const float* gate, int gate_stride, int refinements,
                 const Activations& out, cudaStream_t stream);
// Each head of `width` values normed by itself with weight[width], then times silu(gate).
void gated_norm(const float* x, int stride, const float* weight, float epsilon, int width, const float* gate,
                int gate_stride, int refinements, const Activations& out, cudaStream_t stream);

// out[row][first + i] = row `row` times row i of the matrix, added to what is there when `add`.
void qlinear_decode(const Matrix& matrix, const Activations& in, float* out, int stride, bool add,
                    cudaStream_t stream);
void qlinear_prefill(const Matrix& matrix, const Activations& in, float* out, int stride, bool add,
                     cudaStream_t stream);

// Norms and rotates queries and keys of each row in place, mixes them for keys at 4 bits (kv_q4.h), and stores its keys
// and values at its position.
void place_heads(float* qkv, int rows, const HeadShape& shape, const HeadNorms& norms, const float* cosines,
                 const float* sines, const KvView& kv, cudaStream_t stream);

// Attention of each row by itself: partial results [row][head][most_blocks][head_dim + kPartialTail] of its blocks
// (`most_blocks` of them are launched, those it does not see end at once), then their fold to out[row][heads][head_dim].
void attention_decode(const float* q, int rows, const HeadShape& shape, float scale, const KvView& kv, int most_blocks,
                      float* partials, cudaStream_t stream);
void attention_fold(const float* partials, const int32_t* visible, int rows, const HeadShape& shape, int most_blocks,
                    float* out, cudaStream_t stream);

// The same for tiles of rows, each of one slot.
void attention_prefill(const float* q, const HeadShape& shape, float scale, const KvView& kv, const QueryTile* tiles,
                       int tile_count, float* out, cudaStream_t stream);

// index[row] = the lowest index of the largest of n values; NaN is never largest.
void argmax(const float* x, int n, int rows, int32_t* index, cudaStream_t stream);

// index[row] = the first i whose cumulated weight exp((x[i] - max) / temperature) exceeds uniform[row] (in [0, 1)) times
// their sum.
void sample(const float* x, int n, int rows, float temperature, const float* uniform, int32_t* index,
            cudaStream_t stream);

}  // namespace assay::cuda
