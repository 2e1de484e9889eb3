// qlinear, both forms: 16 outputs a register, panels read as they are packed.
//
// A thread walks its panels front to back, prefetched ahead, so that few rows go
// at the speed of memory; more rows differ in the size of the tile alone.
#include "linear_float.h"
#include "linear_nibble.h"
#include "linear_q8.h"
#include "linear_six.h"

namespace assay::cpu::avx512 {

void qlinear_decode(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output) {
  const int blocks = matrix.columns / kBlock;
  for (int index = begin; index < end; ++index) {
    const uint8_t* panel = panel_at(matrix, index);
    const int column = (index - begin) * kPanelRows;
    const int valid = rows_at(matrix, index);
    switch (form_of(matrix.type)) {
      case Form::q4_1:
        nibble_panel16<Form::q4_1>(panel, blocks, rows, output, column, valid);
        break;
      case Form::q4_0:
        nibble_panel16<Form::q4_0>(panel, blocks, rows, output, column, valid);
        break;
      case Form::nibbles:
        nibble_panel16<Form::nibbles>(panel, blocks, rows, output, column, valid);
        break;
      case Form::sixes:
        six_panel16<Form::sixes>(panel, blocks, rows, output, column, valid);
        break;
      case Form::halved_sixes:
        six_panel16<Form::halved_sixes>(panel, blocks, rows, output, column, valid);
        break;
      case Form::q8_0:
        byte_panel16(panel, blocks, rows, output, column, valid);
        break;
      case Form::f16:
        float_panel16<Form::f16>(panel, matrix, rows, output, column, valid);
        break;
      case Form::bf16:
        float_panel16<Form::bf16>(panel, matrix, rows, output, column, valid);
        break;
      case Form::f32:
        float_panel16<Form::f32>(panel, matrix, rows, output, column, valid);
        break;
    }
  }
}

void qlinear_prefill(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output, uint8_t*) {
  qlinear_decode(matrix, begin, end, rows, output);
}

}  // namespace assay::cpu::avx512
