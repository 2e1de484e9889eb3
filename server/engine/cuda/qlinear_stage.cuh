// What the prefill form of qlinear keeps in shared memory, and how it comes there.
//
// A stage is one block of 32 columns of 128 rows of the matrix and of 64 of the activations. It
// brings its own header where that is of one block; where a header is of several blocks their
// scales become floats in a table instead.
#pragma once

#include "linear.cuh"

namespace assay::cuda {

constexpr int kStageThreads = 256;
constexpr int kStages = 4;        // under way
constexpr int kStageTiles = 4;    // of the matrix
constexpr int kStageTokens = 64;  // rows of activations

template <TensorType kType>
struct Stage {
  using Form = Layout<kType>;
  static constexpr int kPlaneWords = Form::kBlockBytes / 16;  // of 16 bytes, of a tile's block
  static constexpr int kHighWords = Form::kHighBytes / 16;
  static constexpr int kHeaderWords = Form::kGroup == 1 ? kTileRows * Form::kHeaderBytes / 16 : 0;
  static constexpr int kTileWords = kPlaneWords + kHighWords + kHeaderWords;
  static constexpr int kWeightWords = kStageTiles * kTileWords;
  static constexpr int kTokenWords = 2 * kStageTokens;  // two halves of each token's block
  static constexpr int kScaleWords = kStageTokens / 2;
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

// A thread's share of what a stage is filled with. Half of the threads begin with the weights, the others with the
// activations. What lies past the last row is loaded from it and not stored later.
template <TensorType kType>
class Feed {
 public:
  __device__ Feed(const Matrix& matrix, const Activations& in, Shared<uint4> words)
      : matrix_(matrix), in_(in), words_(words) {
    const int groups = block_count(matrix.columns) / Form::kGroup;
    const int first_tile = static_cast<int>(blockIdx.x) * kStageTiles, last_tile = tile_count(matrix.rows) - 1;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int word = slot(i), tile = first_tile + word / Own::kTileWords, at = word % Own::kTileWords;
      own_[i] = (tile < last_tile ? tile : last_tile) * groups * kGroupWords + at;
      // Past the planes, that is where the block's high bits lie among those of its group.
      if (Form::kGroup != 1 && at >= Own::kPlaneWords) own_[i] += Form::kHighAt / 16 - Own::kPlaneWords;
      keep(own_[i]);
    }
    const int index = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.y) * kStageTokens;
    const int row = token + index / 2, pair = token / 2 + index - Own::kTokenWords;
    token_ = 2 * (row < in.rows ? row : in.rows - 1) + index % 2;
    if (index >= Own::kTokenWords) token_ = pair < in.stride / 2 ? pair : in.stride / 2 - 1;
    keep(token_);
  }

  __device__ __forceinline__ Stage<kType> stage(int block) const {
    return Stage<kType>(words_.part(block % kStages * Own::kWords, Own::kWords));
  }

  // Begins to load a block's stage.
  __device__ __forceinline__ void load(int block) const {
    const Stage<kType> to = stage(block);
    const int index = static_cast<int>(threadIdx.x);
    const int group = block / Form::kGroup * kGroupWords, within = block % Form::kGroup;
    const uint4* weights = reinterpret_cast<const uint4*>(matrix_.data);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int word = slot(i);
      if (word >= Own::kWeightWords) break;
      const bool high = Own::kHighWords != 0 && word % Own::kTileWords >= Own::kPlaneWords;
      const int from = own_[i] + group + within * (high ? Own::kHighWords : Own::kPlaneWords);
      copy_async(to.weights, word, weights + static_cast<unsigned>(from));
    }
    if (index < Own::kTokenWords) {
      const unsigned from = static_cast<unsigned>(block * in_.stride * 2 + token_);
      const int at = index % 2 * kStageTokens + index / 2;
      copy_async(to.q, at, in_.q + from);
      if (in_.residual != nullptr) copy_async(to.residual, at, in_.residual + from);
    } else if (index < Own::kTokenWords + Own::kScaleWords) {
      const unsigned from = static_cast<unsigned>(block * (in_.stride / 2) + token_);
      copy_async(to.scale, index - Own::kTokenWords, reinterpret_cast<const float4*>(in_.scale) + from);
    }
  }

 private:
  using Form = Layout<kType>;
  using Own = Stage<kType>;
  static constexpr int kGroupWords = Form::kBytes / 16;
  static constexpr int kPieces = (Own::kWeightWords + kStageThreads - 1) / kStageThreads;

  __device__ static __forceinline__ int slot(int piece) {
    return piece * kStageThreads + (static_cast<int>(threadIdx.x) + kStageThreads / 2) % kStageThreads;
  }

  const Matrix& matrix_;
  const Activations& in_;
  Shared<uint4> words_;
  int own_[kPieces];  // where the thread's weights begin, in words
  int token_;         // its half of a row of activations, or its pair of scales
};

// The scales of groups of several blocks: two groups take turns.
template <TensorType kType>
struct ScaleTable {
  using Form = Layout<kType>;
  static constexpr int kEntries = Form::kGroup == 1 ? 0 : Form::kW4 ? 1 : Form::kGroup;  // of a row
  static constexpr int kRows = kStageTiles * kTileRows;
  static constexpr int kWords = 2 * kEntries * kRows / 2;  // of 16 bytes

  Shared<float2> entries;  // [group % 2][entry][row]
  float inverse;

  // One thread a row.
  __device__ __forceinline__ void fill(const Matrix& matrix, int group) const {
    if (kEntries == 0 || threadIdx.x >= kRows) return;
    const int row = static_cast<int>(threadIdx.x), groups = block_count(matrix.columns) / Form::kGroup;
    const int tile = static_cast<int>(blockIdx.x) * kStageTiles + row / kTileRows, last = tile_count(matrix.rows) - 1;
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

}  // namespace assay::cuda
