// qlinear: panels of a packed matrix times rows of activations.
//
// The chains are those of ops.h, without fused steps. Matrices of floats take
// the float activations instead, column by column.
#include <vector>

#include "panel.h"
#include "ref.h"

namespace assay::ref {
namespace {

void store(const Output& output, int row, size_t column, float value) {
  float& out = output.out[static_cast<size_t>(row) * output.stride + column];
  out = output.add ? out + value : value;
}

// A weight row as integers, widened once for every activation row.
struct WideRow {
  WideRow(const Packed& matrix, const uint8_t* panel, int lane) {
    const size_t bytes = block_bytes(matrix.type);
    const bool has_minimum = matrix.type == TensorType::q4_1;
    for (int block = 0; block < matrix.blocks(); ++block) {
      const PanelBlock view(matrix.type, panel + static_cast<size_t>(block) * bytes);
      for (int i = 0; i < kBlock; ++i) integers.push_back(static_cast<int16_t>(view.integer(lane, i)));
      scale.push_back(view.scale(lane));
      minimum.push_back(has_minimum ? view.minimum(lane) : 0.0f);
    }
  }

  std::vector<int16_t> integers;
  std::vector<float> scale;
  std::vector<float> minimum;
};

int dot(const int16_t* weights, const int8_t* q) {
  int total = 0;
  for (int i = 0; i < kBlock; ++i) total += weights[i] * q[i];
  return total;
}

void quantised_row(const Packed& matrix, const uint8_t* panel, int lane, const Rows& rows, const Output& output,
                   size_t column) {
  const WideRow weights(matrix, panel, lane);
  const int blocks = matrix.blocks();
  const int stored = blocks + rows.refinements;
  for (int row = 0; row < rows.count; ++row) {
    const int8_t* q = rows.q + static_cast<size_t>(row) * static_cast<size_t>(stored * kBlock);
    const float* scale = rows.scale + static_cast<size_t>(row) * static_cast<size_t>(stored);
    const float* sum = rows.sum + static_cast<size_t>(row) * static_cast<size_t>(stored);
    const int32_t* refined = rows.refined + row * rows.refinements;
    const bool all_refined = rows.refinements == blocks;
    float total = 0.0f;
    for (int block = 0; block < blocks; ++block) {
      const size_t b = static_cast<size_t>(block);
      float product = static_cast<float>(dot(weights.integers.data() + b * kBlock, q + block * kBlock));
      if (all_refined) {
        const int residual = dot(weights.integers.data() + b * kBlock, q + (blocks + block) * kBlock);
        product += static_cast<float>(residual) * 0x1p-8f;
      }
      total += scale[block] * (weights.scale[b] * product + weights.minimum[b] * sum[block]);
    }
    float residual = 0.0f;
    for (int extra = 0; !all_refined && extra < rows.refinements; ++extra) {
      const size_t b = static_cast<size_t>(refined[extra]);
      const int product = dot(weights.integers.data() + b * kBlock, q + (blocks + extra) * kBlock);
      residual += scale[blocks + extra] * (weights.scale[b] * static_cast<float>(product));
    }
    store(output, row, column, total + residual);
  }
}

void float_row(const Packed& matrix, const uint8_t* panel, int lane, const Rows& rows, const Output& output,
               size_t column) {
  const size_t bytes = block_bytes(matrix.type);
  for (int row = 0; row < rows.count; ++row) {
    const float* x = rows.x + static_cast<size_t>(row) * static_cast<size_t>(matrix.columns);
    float total = 0.0f;
    for (int block = 0; block < matrix.blocks(); ++block) {
      const PanelBlock view(matrix.type, panel + static_cast<size_t>(block) * bytes);
      for (int i = 0; i < kBlock; ++i) total += view.value(lane, i) * x[block * kBlock + i];
    }
    store(output, row, column, total);
  }
}

}  // namespace

void qlinear_decode(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output) {
  for (int index = begin; index < end; ++index) {
    for (int lane = 0; lane < matrix.rows_in(index); ++lane) {
      const size_t column = static_cast<size_t>((index - begin) * kPanelRows + lane);
      if (matrix.quantised()) {
        quantised_row(matrix, matrix.panel(index), lane, rows, output, column);
      } else {
        float_row(matrix, matrix.panel(index), lane, rows, output, column);
      }
    }
  }
}

void qlinear_prefill(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output, uint8_t*) {
  qlinear_decode(matrix, begin, end, rows, output);
}

}  // namespace assay::ref
