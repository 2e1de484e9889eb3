// qlinear, prefill form: many rows of activations, int8 products on the matrix units.
//
// A block of threads computes 128 rows of the matrix times 64 of the activations; its
// eight warps 32 x 32 each. Blocks of 32 columns stream through shared memory, kStages
// of them under way (cp.async, qlinear_stage.cuh). After each the integer dots become floats
// and join the chains of linear.cuh, the same ones that the decode form computes. The scales
// of a group of several blocks are laid out while the last block before it is computed.
//
// What limits this form is how many instructions are issued, not memory: with eight products of
// a warp go two steps for each of 32 sums, so constants and addresses are kept in registers.
#include <type_traits>

#include "qlinear_stage.cuh"

namespace assay::cuda {
namespace {

constexpr int kWarpTokens = 32;  // a warp's share of a stage is one tile times these

// Where a lane finds its operands in a stage (matrix.cuh): the first of each, the others a fixed way behind.
template <TensorType kType>
struct Place {
  int tile;   // in words
  int row;    // of the four tiles
  int word;   // of that row's plane
  int token;  // its word t, of the left halves
  int pair;   // of scales

  __device__ Place() {
    const int warp = warp_index(), g = lane_index() / 4, t = lane_index() % 4, share = warp / kStageTiles;
    tile = warp % kStageTiles * Stage<kType>::kTileWords * 4;
    row = warp % kStageTiles * kTileRows + g;
    word = tile + g * 4 + t;
    token = (share * kWarpTokens + g) * 4 + t;
    pair = share * kWarpTokens / 2 + t;
    keep(row);
    keep(word);
    keep(token);
    keep(pair);
  }
};

// The four words of an int8 product's left side: rows `first` and 8 behind of the tile, both column halves.
template <TensorType kType>
__device__ __forceinline__ void load_weights(Shared<uint32_t> words, const Place<kType>& place, int first,
                                             uint32_t (&a)[4]) {
  using Form = Layout<kType>;
  constexpr int kPlaneWords = kPlaneBytes / 4, kHigh = Form::kBlockBytes / 4;
  const int t = lane_index() % 4;
  const uint32_t upper = words.get(place.word + first * 4), lower = words.get(place.word + (first + 8) * 4);
  if constexpr (kType == TensorType::q8_0) {
    a[0] = upper;
    a[1] = lower;
    a[2] = words.get(place.word + kPlaneWords + first * 4);
    a[3] = words.get(place.word + kPlaneWords + (first + 8) * 4);
  } else {
    uint32_t high[2][2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.row % kTileRows + first + 8 * i, at = place.tile + kHigh + row * Form::kHighWords;
      if constexpr (Form::kHighWords != 0) high[i][0] = high[i][1] = words.get(at);
      if constexpr (Form::kHighWords == 2) high[i][1] = words.get(at + 1);
    }
    a[0] = low_columns<kType>(upper, high[0][0], t);
    a[1] = low_columns<kType>(lower, high[1][0], t);
    a[2] = high_columns<kType>(upper, high[0][1], t);
    a[3] = high_columns<kType>(lower, high[1][1], t);
  }
}

// The scales of row `behind` after the lane's first one, of a block that brought its own header.
template <TensorType kType>
__device__ __forceinline__ WeightScale load_scale(Shared<uint32_t> words, const Place<kType>& place, int behind,
                                                  float inverse) {
  const int row = place.row % kTileRows + behind, at = place.tile + Layout<kType>::kHeaderAt / 4;
  Header<kType> header;
  if constexpr (Layout<kType>::kHeaderBytes == 4) {
    header.words[0] = words.get(at + row);
  } else {
    header.words[0] = words.get(at + row / 2) >> (row % 2 * 16) & 0xffffu;
  }
  return header.scale(0, inverse);
}

// A lane's part of the products of 16 rows with 8 rows of activations, on top of `start`.
template <TensorType kType>
__device__ __forceinline__ void multiply(const uint32_t (&a)[4], const uint32_t (&b)[2], const int (&start)[4],
                                         Dots (&dots)[4]) {
  int first[4], second[4] = {};
  if constexpr (Layout<kType>::kScaling == Scaling::halves) {
    product_int8(first, {a[0], a[1]}, b[0], start);
    product_int8(second, {a[2], a[3]}, b[1], start);
  } else {
    product_int8(first, a, b, start);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) dots[i] = {first[i], second[i]};
}

// One block of columns: dots, then a step of every chain. total[m][n] as the products' results lie.
template <TensorType kType>
__device__ __forceinline__ void add_stage(const Stage<kType>& stage, const ScaleTable<kType>& table,
                                          const Place<kType>& place, int block, const int (&start)[4], bool refined,
                                          float (&total)[2][4][4]) {
  constexpr bool kHalves = Layout<kType>::kScaling == Scaling::halves;
  constexpr int kAtOnce = kHalves ? 1 : 2;  // half tiles: there are registers for so many dots
  constexpr int kRight = kStageTokens * 4;  // words from the left halves to the right ones
  const Shared<uint32_t> words = stage.weights.template as<uint32_t>();
  const Shared<uint32_t> q = stage.q.template as<uint32_t>(), residual = stage.residual.template as<uint32_t>();
  const Shared<float4> scales = stage.scale.template as<float4>();
  uint32_t a[2][4];
  RowScale weight[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    load_weights<kType>(words, place, 16 * m, a[m]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int behind = 16 * m + 8 * i;
      if constexpr (Layout<kType>::kGroup == 1) {
        weight[m][i] = row_scale(load_scale<kType>(words, place, behind, table.inverse));
      } else {
        weight[m][i] = row_scale(table.scale(block, place.row + behind));
      }
      if (!kHalves) keep(weight[m][i].shift);
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int at = place.token + 8 * n * 4;
    const float4 pair = scales.get(place.pair + 4 * n);
    const float2 activation[2] = {make_float2(pair.x, pair.y), make_float2(pair.z, pair.w)};
    const uint32_t b[2] = {q.get(at), q.get(at + kRight)};
    const bool more = refined && __any_sync(kFullWarp, is_refined(pair.x) || is_refined(pair.z)) != 0;
#pragma unroll
    for (int first = 0; first < 2; first += kAtOnce) {
      Dots dots[kAtOnce][4];
      float value[kAtOnce][4];
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m) multiply<kType>(a[first + m], b, start, dots[m]);
      if (more) {
        const uint32_t left[2] = {residual.get(at), residual.get(at + kRight)};
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) {
          Dots residuals[4];
          multiply<kType>(a[first + m], left, start, residuals);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            value[m][i] = block_value<kType>(weight[first + m][i / 2], dots[m][i], residuals[i]);
          }
        }
      } else {
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) value[m][i] = block_value<kType>(weight[first + m][i / 2], dots[m][i]);
        }
      }
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& sum = total[first + m][n][i];
          sum = add_block<kType>(sum, value[m][i], weight[first + m][i / 2], activation[i % 2]);
        }
      }
    }
  }
}

template <TensorType kType>
__device__ __forceinline__ void store(const float (&total)[2][4][4], const Matrix& matrix, int rows, float* out,
                                      int stride, bool add) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int column = (static_cast<int>(blockIdx.x) * kStageTiles + warp_index() % kStageTiles) * kTileRows;
  const int token = static_cast<int>(blockIdx.y) * kStageTokens + warp_index() / kStageTiles * kWarpTokens;
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
__global__ void __launch_bounds__(kStageThreads, 2)
    qlinear_tiles(Matrix matrix, Activations in, float* __restrict__ out, int stride, bool add) {
  using Form = Layout<kType>;
  using Table = ScaleTable<kType>;
  ASSAY_STATIC_SHARED(arena, (kStages * Stage<kType>::kWords + Table::kWords) * 16);
  const Shared<uint4> words = arena.template take<uint4>(kStages * Stage<kType>::kWords);
  const Table table{arena.template take<float2>(2 * Table::kWords), inverse_factor<kType>(matrix)};
  const Feed<kType> feed(matrix, in, words);
  const Place<kType> place;
  const bool refined = in.residual != nullptr;
  const int blocks = block_count(matrix.columns), length = segment_blocks<kType>(blocks);
  int start[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    start[i] = blocks > 0 ? kFloatDisguise : i;  // a known constant would be moved anew for each product
    keep(start[i]);
  }
  float total[2][4][4] = {}, run[2][4][4] = {};
  table.fill(matrix, 0);
#pragma unroll
  for (int block = 0; block < kStages - 1; ++block) {
    if (block < blocks) feed.load(block);
    copy_commit();
  }
  int left = length;  // blocks of the present segment
  for (int block = 0; block < blocks; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const int ahead = block + kStages - 1;
    if (ahead < blocks) feed.load(ahead);
    copy_commit();
    if (Form::kGroup != 1 && (block + 1) % Form::kGroup == 0 && block + 1 < blocks) {
      table.fill(matrix, (block + 1) / Form::kGroup);
    }
    add_stage<kType>(feed.stage(block), table, place, block, start, refined, run);
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
  const dim3 grid(static_cast<unsigned>((tile_count(matrix.rows) + kStageTiles - 1) / kStageTiles),
                  static_cast<unsigned>((in.rows + kStageTokens - 1) / kStageTokens));
  with_type(matrix.type, [&](auto kind) {
    if constexpr (Layout<kind()>::kQuantised) {
      ASSAY_LAUNCH((qlinear_tiles<kind()>), grid, kStageThreads, 0, stream, matrix, in, out, stride, add);
    }
  });
}

}  // namespace assay::cuda
