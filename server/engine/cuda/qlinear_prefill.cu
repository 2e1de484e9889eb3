// qlinear, prefill form: many rows of activations, int8 products on the matrix units.
//
// A block of threads computes 128 rows of the matrix times 64 of the activations; its
// eight warps 32 x 32 each. Blocks of 32 columns stream through shared memory, kStages
// of them under way (cp.async). After each the integer dots become floats and join the
// chains of linear.cuh, the same ones that the decode form computes. A header of one block
// comes with it; one of several blocks becomes a table of their scales in shared memory while
// the last block before them is computed.
#include <type_traits>

#include "linear.cuh"

namespace assay::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStages = 4;
constexpr int kTiles = 4;    // of the matrix, one for each warp of a column of warps
constexpr int kTokens = 64;  // rows of activations; two columns of warps
constexpr int kWarpTokens = 32;

template <TensorType kType>
struct Stage {
  using Form = Layout<kType>;
  static constexpr int kPlaneWords = Form::kBlockBytes / 16;  // of 16 bytes, of a tile's block
  static constexpr int kHighWords = Form::kHighBytes / 16;
  static constexpr int kHeaderWords = Form::kGroup == 1 ? kTileRows * Form::kHeaderBytes / 16 : 0;
  static constexpr int kTileWords = kPlaneWords + kHighWords + kHeaderWords;
  static constexpr int kWeightWords = kTiles * kTileWords;
  static constexpr int kTokenWords = 2 * kTokens;  // two halves of each token's block
  static constexpr int kScaleWords = kTokens / 2;
  static constexpr int kWords = kWeightWords + 2 * kTokenWords + kScaleWords;

  __device__ explicit Stage(Shared<uint4> words)
      : weights(words.part(0, kWeightWords)),
        q(words.part(kWeightWords, kTokenWords)),
        residual(words.part(kWeightWords + kTokenWords, kTokenWords)),
        scale(words.part(kWeightWords + 2 * kTokenWords, kScaleWords)) {}

  Shared<uint4> weights;   // [tile][planes, high, header of one block: as in packed.cuh]
  Shared<uint4> q;         // [half][token]
  Shared<uint4> residual;  // the same
  Shared<uint4> scale;     // [token / 2]: two (scale, sum)
};

// The scales of groups of several blocks: two groups take turns.
template <TensorType kType>
struct ScaleTable {
  using Form = Layout<kType>;
  static constexpr int kEntries = Form::kGroup == 1 ? 0 : Form::kW4 ? 1 : Form::kGroup;  // of a row
  static constexpr int kRows = kTiles * kTileRows;
  static constexpr int kWords = 2 * kEntries * kRows / 2;  // of 16 bytes

  Shared<float2> entries;  // [group % 2][entry][row]
  float inverse;

  // One thread a row.
  __device__ __forceinline__ void fill(const Matrix& matrix, int group) const {
    if (kEntries == 0 || threadIdx.x >= kRows) return;
    const int row = static_cast<int>(threadIdx.x), groups = block_count(matrix.columns) / Form::kGroup;
    const int tile = static_cast<int>(blockIdx.x) * kTiles + row / kTileRows, last = tile_count(matrix.rows) - 1;
    const int64_t index = static_cast<int64_t>(tile < last ? tile : last) * groups + group;
    Header<kType> header;
    header.load(matrix.data + index * Form::kBytes, row % kTileRows);
#pragma unroll
    for (int entry = 0; entry < kEntries; ++entry) {
      const WeightScale scale = header.scale(entry, inverse);
      entries.put((group % 2 * kEntries + entry) * kRows + row, make_float2(scale.first, scale.second));
    }
  }

  __device__ __forceinline__ WeightScale scale(int block, int row) const {
    const int entry = Form::kW4 ? 0 : block % Form::kGroup;
    const float2 found = entries.get((block / Form::kGroup % 2 * kEntries + entry) * kRows + row);
    return {found.x, found.y};
  }
};

template <TensorType kType>
__device__ __forceinline__ void load_stage(const Stage<kType>& stage, const Matrix& matrix, const Activations& in,
                                           int block, bool refined) {
  using Form = Layout<kType>;
  using Own = Stage<kType>;
  const unsigned tile = blockIdx.x * kTiles, token = blockIdx.y * kTokens, at_block = static_cast<unsigned>(block);
  const unsigned groups = static_cast<unsigned>(block_count(matrix.columns)) / Form::kGroup;
  const unsigned last_tile = static_cast<unsigned>(tile_count(matrix.rows)) - 1;
  const unsigned last_row = static_cast<unsigned>(in.rows) - 1, last_pair = static_cast<unsigned>(in.stride) / 2 - 1;
  const uint4* weights = reinterpret_cast<const uint4*>(matrix.data);
  const unsigned group = at_block / Form::kGroup, within = at_block % Form::kGroup;
  // What lies past the last row is loaded from it and not stored later.
#pragma unroll
  for (unsigned first = 0; first < Own::kWeightWords; first += kThreads) {
    const unsigned i = first + threadIdx.x;
    if (i >= Own::kWeightWords) break;
    const unsigned own = min(tile + i / Own::kTileWords, last_tile) * groups + group;
    unsigned at = i % Own::kTileWords;
    if constexpr (Form::kGroup != 1) {
      const unsigned high = Form::kHighAt / 16 + within * Own::kHighWords - Own::kPlaneWords;
      at += at < Own::kPlaneWords ? within * Own::kPlaneWords : high;
    }
    copy_async(stage.weights, static_cast<int>(i), weights + static_cast<size_t>(own) * (Form::kBytes / 16) + at);
  }
  const unsigned row = at_block * static_cast<unsigned>(in.stride);
  if (threadIdx.x < Stage<kType>::kTokenWords) {
    const unsigned half = threadIdx.x % 2, column = threadIdx.x / 2;
    const size_t from = static_cast<size_t>(row + min(token + column, last_row)) * 2 + half;
    const int to = static_cast<int>(half * kTokens + column);
    copy_async(stage.q, to, in.q + from);
    if (refined) copy_async(stage.residual, to, in.residual + from);
  } else if (threadIdx.x < Stage<kType>::kTokenWords + Stage<kType>::kScaleWords) {
    const unsigned pair = threadIdx.x - Stage<kType>::kTokenWords;
    const unsigned from = row / 2 + min(token / 2 + pair, last_pair);
    copy_async(stage.scale, static_cast<int>(pair), reinterpret_cast<const float4*>(in.scale) + from);
  }
}

// The four words of an int8 product's left side: rows g and g + 8 of a half tile, both column halves.
template <TensorType kType>
__device__ __forceinline__ void load_weights(Shared<uint32_t> words, int row, int t, uint32_t (&a)[4]) {
  using Form = Layout<kType>;
  constexpr int kPlaneWords = kPlaneBytes / 4, kHigh = Form::kBlockBytes / 4;
  const uint32_t first = words.get(row * 4 + t), second = words.get((row + 8) * 4 + t);
  if constexpr (kType == TensorType::q8_0) {
    a[0] = first;
    a[1] = second;
    a[2] = words.get(kPlaneWords + row * 4 + t);
    a[3] = words.get(kPlaneWords + (row + 8) * 4 + t);
  } else {
    uint32_t high[2][2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = kHigh + (row + 8 * i) * Form::kHighWords;
      if constexpr (Form::kHighWords != 0) high[i][0] = high[i][1] = words.get(at);
      if constexpr (Form::kHighWords == 2) high[i][1] = words.get(at + 1);
    }
    a[0] = low_columns<kType>(first, high[0][0], t);
    a[1] = low_columns<kType>(second, high[1][0], t);
    a[2] = high_columns<kType>(first, high[0][1], t);
    a[3] = high_columns<kType>(second, high[1][1], t);
  }
}

// The scales of a block that brought its own header.
template <TensorType kType>
__device__ __forceinline__ WeightScale load_scale(Shared<uint32_t> words, int row, float inverse) {
  constexpr int kFirst = Layout<kType>::kHeaderAt / 4;
  Header<kType> header;
  if constexpr (Layout<kType>::kHeaderBytes == 4) {
    header.words[0] = words.get(kFirst + row);
  } else {
    header.words[0] = words.get(kFirst + row / 2) >> (row % 2 * 16) & 0xffffu;
  }
  return header.scale(0, inverse);
}

// A lane's part of the products of 16 rows with 8 rows of activations.
template <TensorType kType>
__device__ __forceinline__ void multiply(const uint32_t (&a)[4], const uint32_t (&b)[2], Product (&products)[4]) {
  int c[4] = {kFloatDisguise, kFloatDisguise, kFloatDisguise, kFloatDisguise};
  if constexpr (Layout<kType>::kScaling == Scaling::halves) {
    int d[4] = {kFloatDisguise, kFloatDisguise, kFloatDisguise, kFloatDisguise};
    product_int8(c, {a[0], a[1]}, b[0]);
    product_int8(d, {a[2], a[3]}, b[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) products[i] = {exact_float(c[i]), exact_float(d[i])};
  } else {
    product_int8(c, a, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) products[i] = {exact_float(c[i]), 0.0f};
  }
}

// One block of columns: dots, then a step of every chain. total[m][n] as the products' results lie.
template <TensorType kType>
__device__ __forceinline__ void add_stage(const Stage<kType>& stage, const ScaleTable<kType>& table, int block,
                                          bool refined, float (&total)[2][4][4]) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int tile = warp_index() % kTiles, token = warp_index() / kTiles * kWarpTokens;
  constexpr int kTileWords = Stage<kType>::kTileWords;
  const Shared<uint32_t> words = stage.weights.part(tile * kTileWords, kTileWords).template as<uint32_t>();
  const Shared<uint32_t> q = stage.q.template as<uint32_t>(), residual = stage.residual.template as<uint32_t>();
  const Shared<float4> scales = stage.scale.template as<float4>();
  uint32_t a[2][4];
  WeightScale weight[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    load_weights<kType>(words, 16 * m + g, t, a[m]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 16 * m + g + 8 * i;
      if constexpr (Layout<kType>::kGroup == 1) {
        weight[m][i] = load_scale<kType>(words, row, table.inverse);
      } else {
        weight[m][i] = table.scale(block, tile * kTileRows + row);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int column = token + 8 * n + g;
    const float4 pair = scales.get((token + 8 * n) / 2 + t);
    const float2 activation[2] = {make_float2(pair.x, pair.y), make_float2(pair.z, pair.w)};
    const uint32_t b[2] = {q.get(column * 4 + t), q.get((kTokens + column) * 4 + t)};
    uint32_t left[2] = {0, 0};
    const bool more = refined && __any_sync(kFullWarp, is_refined(pair.x) || is_refined(pair.z)) != 0;
    if (more) {
      left[0] = residual.get(column * 4 + t);
      left[1] = residual.get((kTokens + column) * 4 + t);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      Product products[4];
      multiply<kType>(a[m], b, products);
      if (more) {
        Product residuals[4];
        multiply<kType>(a[m], left, residuals);
#pragma unroll
        for (int i = 0; i < 4; ++i) products[i] = refined_product<kType>(products[i], residuals[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[m][n][i] = add_block<kType>(total[m][n][i], products[i], weight[m][i / 2], activation[i % 2]);
      }
    }
  }
}

template <TensorType kType>
__device__ __forceinline__ void store(const float (&total)[2][4][4], const Matrix& matrix, int rows, float* out,
                                      int stride, bool add) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int column = (static_cast<int>(blockIdx.x) * kTiles + warp_index() % kTiles) * kTileRows;
  const int token = static_cast<int>(blockIdx.y) * kTokens + warp_index() / kTiles * kWarpTokens;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = token + 8 * n + 2 * t + i % 2, at = column + 16 * m + g + i / 2 * 8;
        if (row >= rows || at >= matrix.rows) continue;
        float* target = out + static_cast<int64_t>(row) * stride + at;
        *target = add ? *target + total[m][n][i] : total[m][n][i];
      }
    }
  }
}

template <TensorType kType>
__global__ void __launch_bounds__(kThreads, 2)
    qlinear_tiles(Matrix matrix, Activations in, float* __restrict__ out, int stride, bool add) {
  using Form = Layout<kType>;
  using Table = ScaleTable<kType>;
  ASSAY_STATIC_SHARED(arena, (kStages * Stage<kType>::kWords + Table::kWords) * 16);
  const Shared<uint4> words = arena.template take<uint4>(kStages * Stage<kType>::kWords);
  const Table table{arena.template take<float2>(2 * Table::kWords), inverse_factor<kType>(matrix)};
  const auto stage = [&](int index) {
    return Stage<kType>(words.part(index % kStages * Stage<kType>::kWords, Stage<kType>::kWords));
  };
  const bool refined = in.residual != nullptr;
  const int blocks = block_count(matrix.columns), length = segment_blocks<kType>(blocks);
  float total[2][4][4] = {}, run[2][4][4] = {};
  table.fill(matrix, 0);
#pragma unroll
  for (int block = 0; block < kStages - 1; ++block) {
    if (block < blocks) load_stage<kType>(stage(block), matrix, in, block, refined);
    copy_commit();
  }
  int left = length;  // blocks of the present segment
  for (int block = 0; block < blocks; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const int ahead = block + kStages - 1;
    if (ahead < blocks) load_stage<kType>(stage(ahead), matrix, in, ahead, refined);
    copy_commit();
    if (Form::kGroup != 1 && (block + 1) % Form::kGroup == 0 && block + 1 < blocks) {
      table.fill(matrix, (block + 1) / Form::kGroup);
    }
    add_stage<kType>(stage(block), table, block, refined, run);
    if (--left != 0 && block + 1 != blocks) continue;
    left = length;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[m][n][i] += run[m][n][i];
          run[m][n][i] = 0.0f;
        }
      }
    }
  }
  store<kType>(total, matrix, in.rows, out, stride, add);
}

}  // namespace

void qlinear_prefill(const Matrix& matrix, const Activations& in, float* out, int stride, bool add,
                     cudaStream_t stream) {
  if (is_float(matrix.type)) {
    return qlinear_decode(matrix, in, out, stride, add, stream);
  }
  const dim3 grid(static_cast<unsigned>((tile_count(matrix.rows) + kTiles - 1) / kTiles),
                  static_cast<unsigned>((in.rows + kTokens - 1) / kTokens));
  with_type(matrix.type, [&](auto kind) {
    if constexpr (Layout<kind()>::kQuantised) {
      ASSAY_LAUNCH((qlinear_tiles<kind()>), grid, kThreads, 0, stream, matrix, in, out, stride, add);
    }
  });
}

}  // namespace assay::cuda
