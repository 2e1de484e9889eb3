// qlinear, decode form: a few rows against packed panels, at the speed of memory.
//
// A thread walks its panels front to back: one stream, prefetched ahead.
#include "linear_float.h"
#include "linear_nibble.h"
#include "linear_q8.h"
#include "linear_six.h"

namespace assay::cpu {

void qlinear_decode(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output) {
  const int blocks = matrix.columns / kBlock;
  for (int index = begin; index < end; ++index) {
    const uint8_t* panel = panel_at(matrix, index);
    const int column = (index - begin) * kPanelRows;
    const int valid = rows_at(matrix, index);
    switch (form_of(matrix.type)) {
      case Form::q4_1:
        nibble_panel<Form::q4_1>(panel, blocks, rows, output, column, valid);
        break;
      case Form::q4_0:
        nibble_panel<Form::q4_0>(panel, blocks, rows, output, column, valid);
        break;
      case Form::nibbles:
        nibble_panel<Form::nibbles>(panel, blocks, rows, output, column, valid);
        break;
      case Form::sixes:
        six_panel<Form::sixes>(PackedSixes(panel), blocks, rows, output, column, valid);
        break;
      case Form::halved_sixes:
        six_panel<Form::halved_sixes>(PackedSixes(panel), blocks, rows, output, column, valid);
        break;
      case Form::q8_0:
        q8_panel(panel, blocks, rows, output, column, valid);
        break;
      case Form::f16:
        float_panel<Form::f16>(panel, matrix, rows, output, column, valid);
        break;
      case Form::bf16:
        float_panel<Form::bf16>(panel, matrix, rows, output, column, valid);
        break;
      case Form::f32:
        float_panel<Form::f32>(panel, matrix, rows, output, column, valid);
        break;
    }
  }
}

}  // namespace assay::cpu
