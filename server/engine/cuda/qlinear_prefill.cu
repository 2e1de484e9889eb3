// qlinear, prefill form: many rows of activations, int8 products on the matrix units.
//
// A block of threads computes 128 rows of the matrix times 64 of the activations; its
// eight warps 32 x 32 each. Blocks of 32 columns stream through shared memory, kStages
// of them under way (cp.async). After each the integer dots become floats and join the
// chains of linear.cuh, the same ones that the decode form computes.
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
  static constexpr int kWeightWords = kTiles * Layout<kType>::kBytes / 16;  // of 16 bytes
  static constexpr int kTokenWords = 2 * kTokens;                           // two halves of each token's block
  static constexpr int kScaleWords = kTokens / 2;
  static constexpr int kWords = kWeightWords + 2 * kTokenWords + kScaleWords;

  __device__ explicit Stage(Shared<uint4> words)
      : weights(words.part(0, kWeightWords)),
        q(words.part(kWeightWords, kTokenWords)),
        residual(words.part(kWeightWords + kTokenWords, kTokenWords)),
        scale(words.part(kWeightWords + 2 * kTokenWords, kScaleWords)) {}

  Shared<uint4> weights;   // [tile][as in packed.cuh]
  Shared<uint4> q;         // [half][token]
  Shared<uint4> residual;  // the same
  Shared<uint4> scale;     // [token / 2]: two (scale, sum)
};

template <TensorType kType>
__device__ __forceinline__ void load_stage(const Stage<kType>& stage, const Matrix& matrix, const Activations& in,
                                           int block, bool refined) {
  constexpr int kTileWords = Layout<kType>::kBytes / 16;
  const unsigned tile = blockIdx.x * kTiles, token = blockIdx.y * kTokens, at_block = static_cast<unsigned>(block);
  const unsigned blocks = static_cast<unsigned>(block_count(matrix.columns));
  const unsigned last_tile = static_cast<unsigned>(tile_count(matrix.rows)) - 1;
  const unsigned last_row = static_cast<unsigned>(in.rows) - 1, last_pair = static_cast<unsigned>(in.stride) / 2 - 1;
  const uint4* weights = reinterpret_cast<const uint4*>(matrix.data);
  // What lies past the last row is loaded from it and not stored later.
#pragma unroll
  for (unsigned first = 0; first < Stage<kType>::kWeightWords; first += kThreads) {
    const unsigned i = first + threadIdx.x;
    if (i >= Stage<kType>::kWeightWords) break;
    const unsigned own = min(tile + i / kTileWords, last_tile) * blocks + at_block;
    copy_async(stage.weights, static_cast<int>(i), weights + static_cast<size_t>(own) * kTileWords + i % kTileWords);
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
  constexpr int kPlaneWords = kPlaneBytes / 4;
  const uint32_t first = words.get(row * 4 + t), second = words.get((row + 8) * 4 + t);
  if constexpr (kType == TensorType::q8_0) {
    a[0] = first;
    a[1] = second;
    a[2] = words.get(kPlaneWords + row * 4 + t);
    a[3] = words.get(kPlaneWords + (row + 8) * 4 + t);
  } else {
    a[0] = low_columns<kType>(first);
    a[1] = low_columns<kType>(second);
    a[2] = high_columns<kType>(first);
    a[3] = high_columns<kType>(second);
  }
}

template <TensorType kType>
__device__ __forceinline__ WeightScale load_scale(Shared<uint32_t> words, int row) {
  constexpr int kFirst = Layout<kType>::kPlanes * kPlaneBytes / 4;
  if constexpr (Layout<kType>::kScaleBytes == 4) return weight_scale<kType>(words.get(kFirst + row));
  const uint32_t pair = words.get(kFirst + row / 2);
  return weight_scale<kType>(row % 2 == 0 ? pair & 0xffffu : pair >> 16);
}

// One block of columns: dots, then a step of every chain. total[m][n] as the products' results lie.
template <TensorType kType>
__device__ __forceinline__ void add_stage(const Stage<kType>& stage, bool refined, float (&total)[2][4][4]) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int tile = warp_index() % kTiles, token = warp_index() / kTiles * kWarpTokens;
  constexpr int kTileWords = Layout<kType>::kBytes / 16;
  const Shared<uint32_t> words = stage.weights.part(tile * kTileWords, kTileWords).template as<uint32_t>();
  const Shared<uint32_t> q = stage.q.template as<uint32_t>(), residual = stage.residual.template as<uint32_t>();
  const Shared<float4> scales = stage.scale.template as<float4>();
  uint32_t a[2][4];
  WeightScale weight[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    load_weights<kType>(words, 16 * m + g, t, a[m]);
    weight[m][0] = load_scale<kType>(words, 16 * m + g);
    weight[m][1] = load_scale<kType>(words, 16 * m + g + 8);
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int column = token + 8 * n + g;
    const float4 pair = scales.get((token + 8 * n) / 2 + t);
    const float2 activation[2] = {make_float2(pair.x, pair.y), make_float2(pair.z, pair.w)};
    const uint32_t b[2] = {q.get(column * 4 + t), q.get((kTokens + column) * 4 + t)};
    const bool more = refined && __any_sync(kFullWarp, is_refined(pair.x) || is_refined(pair.z)) != 0;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      int c[4] = {kFloatDisguise, kFloatDisguise, kFloatDisguise, kFloatDisguise};
      product_int8(c, a[m], b);
      float product[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) product[i] = exact_float(c[i]);
      if (more) {
        const uint32_t left[2] = {residual.get(column * 4 + t), residual.get((kTokens + column) * 4 + t)};
        int d[4] = {kFloatDisguise, kFloatDisguise, kFloatDisguise, kFloatDisguise};
        product_int8(d, a[m], left);
#pragma unroll
        for (int i = 0; i < 4; ++i) product[i] = refined_product(product[i], exact_float(d[i]));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[m][n][i] = add_block<kType>(total[m][n][i], product[i], weight[m][i / 2], activation[i % 2]);
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
  ASSAY_STATIC_SHARED(arena, kStages * Stage<kType>::kWords * 16);
  const Shared<uint4> words = arena.template take<uint4>(kStages * Stage<kType>::kWords);
  const auto stage = [&](int index) {
    return Stage<kType>(words.part(index % kStages * Stage<kType>::kWords, Stage<kType>::kWords));
  };
  const bool refined = in.residual != nullptr;
  const int blocks = block_count(matrix.columns), length = segment_blocks(blocks);
  float total[2][4][4] = {}, run[2][4][4] = {};
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
    add_stage<kType>(stage(block), refined, run);
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
  if (matrix.type == TensorType::f32 || matrix.type == TensorType::f16) {
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
