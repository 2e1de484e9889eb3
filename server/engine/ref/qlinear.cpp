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
    halved = form_of(matrix.type) == Form::halved_sixes;
    const size_t bytes = block_bytes(matrix.type);
    for (int block = 0; block < matrix.blocks(); ++block) {
      const PanelBlock view(matrix.type, panel + static_cast<size_t>(block) * bytes);
      for (int i = 0; i < kBlock; ++i) integers.push_back(static_cast<int16_t>(view.integer(lane, i)));
      for (int part = 0; part < 2; ++part) scale.push_back(view.scale(lane, part));
      minimum.push_back(view.has_minimum() ? view.minimum(lane) : 0.0f);
    }
  }

  std::vector<int16_t> integers;
  std::vector<float> scale;  // [blocks][2]
  std::vector<float> minimum;
  bool halved;  // whether the two scales of a block differ
};

int dot(const int16_t* weights, const int8_t* q, int count) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += weights[i] * q[i];
  return total;
}

// Scale times dot of columns [first, first + count) of a block, with 1 / 256 of the residual's where there is one.
float product(const WideRow& weights, int block, int first, int count, const int8_t* q, const int8_t* residual) {
  const int16_t* integers = weights.integers.data() + block * kBlock + first;
  float sum = static_cast<float>(dot(integers, q + first, count));
  if (residual != nullptr) sum += static_cast<float>(dot(integers, residual + first, count)) * 0x1p-8f;
  return weights.scale[static_cast<size_t>(2 * block + first / 16)] * sum;
}

float product(const WideRow& weights, int block, const int8_t* q, const int8_t* residual) {
  if (!weights.halved) return product(weights, block, 0, kBlock, q, residual);
  return product(weights, block, 0, 16, q, residual) + product(weights, block, 16, 16, q, residual);
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
      const int8_t* own_residual = all_refined ? q + (blocks + block) * kBlock : nullptr;
      const float weighted = product(weights, block, q + block * kBlock, own_residual);
      total += scale[block] * (weighted + weights.minimum[static_cast<size_t>(block)] * sum[block]);
    }
    float residual = 0.0f;
    for (int extra = 0; !all_refined && extra < rows.refinements; ++extra) {
      const int8_t* own = q + (blocks + extra) * kBlock;
      residual += scale[blocks + extra] * product(weights, refined[extra], own, nullptr);
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
