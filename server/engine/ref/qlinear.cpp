// qlinear: panels of a packed matrix times rows of activations.
//
// Output = sum over column blocks, in order, of weight scale * activation scale
// * (integer dot product) + weight minimum * activation sum. Matrices of floats
// take the float activations instead, column by column.
#include "ref.h"

#include "panel.h"

namespace assay::ref {
namespace {

void store(const Output& output, int row, size_t column, float value) {
  float& out = output.out[static_cast<size_t>(row) * output.stride + column];
  out = output.add ? out + value : value;
}

// One weight row, widened once and used for every activation row.
void quantised_row(const Packed& matrix, const uint8_t* panel, int lane, const Rows& rows, const Output& output,
                   size_t column) {
  const size_t bytes = block_bytes(matrix.type);
  const size_t columns = static_cast<size_t>(matrix.columns);
  const size_t blocks = static_cast<size_t>(matrix.blocks());
  constexpr int kTile = 8;  // rows in flight: a block is widened once for all of them
  for (int first = 0; first < rows.count; first += kTile) {
    const int count = rows.count - first < kTile ? rows.count - first : kTile;
    float total[kTile] = {};
    for (size_t block = 0; block < blocks; ++block) {
      const PanelBlock view(matrix.type, panel + block * bytes);
      int16_t weights[kBlock];
      for (int i = 0; i < kBlock; ++i) weights[i] = static_cast<int16_t>(view.integer(lane, i));
      const float scale = view.scale(lane);
      const float minimum = matrix.type == TensorType::q4_1 ? view.minimum(lane) : 0.0f;
      for (int row = 0; row < count; ++row) {
        const size_t at = static_cast<size_t>(first + row);
        const int8_t* q = rows.q + at * columns + block * kBlock;
        int dot = 0;
        for (int i = 0; i < kBlock; ++i) dot += weights[i] * q[i];
        total[row] += static_cast<float>(dot) * (scale * rows.scale[at * blocks + block]);
        total[row] += minimum * rows.sum[at * blocks + block];
      }
    }
    for (int row = 0; row < count; ++row) store(output, first + row, column, total[row]);
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
