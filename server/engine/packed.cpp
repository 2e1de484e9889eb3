#include "packed.h"

#include <cstring>
#include <string>

#include "error.h"

namespace assay {
namespace {

// Where byte `column` (of 16 for nibbles, of 32 for bytes) of a row goes.
int interleaved(int row, int column) { return column / 4 * 64 + row * 4 + column % 4; }

void pack_nibbles(const uint8_t* block, int header, int row, uint8_t* out, int out_header) {
  for (int column = 0; column < 16; ++column) out[out_header + interleaved(row, column)] = block[header + column];
}

void pack_block(TensorType type, const uint8_t* block, int row, uint8_t* out) {
  switch (form_of(type)) {
    case Form::q4_1:
      std::memcpy(out + 2 * row, block, 2);
      std::memcpy(out + 32 + 2 * row, block + 2, 2);
      pack_nibbles(block, 4, row, out, 64);
      return;
    case Form::q4_0:
      std::memcpy(out + 2 * row, block, 2);
      pack_nibbles(block, 2, row, out, 32);
      return;
    case Form::q8_0:
      std::memcpy(out + 2 * row, block, 2);
      for (int column = 0; column < kBlock; ++column) out[32 + interleaved(row, column)] = block[2 + column];
      return;
    case Form::f16:
      for (int column = 0; column < kBlock; ++column) {
        std::memcpy(out + 2 * (column * kPanelRows + row), block + 2 * column, 2);
      }
      return;
    case Form::f32:
      for (int column = 0; column < kBlock; ++column) {
        std::memcpy(out + 4 * (column * kPanelRows + row), block + 4 * column, 4);
      }
      return;
    case Form::none:
      return;
  }
}

}  // namespace

size_t block_bytes(TensorType type) {
  switch (form_of(type)) {
    case Form::q4_1:
      return 320;
    case Form::q4_0:
      return 288;
    case Form::q8_0:
      return 544;
    case Form::f16:
      return 1024;
    case Form::f32:
      return 2048;
    case Form::none:
      break;
  }
  unsupported(std::string("weights of type ") + traits(type).name + " are not served on this processor");
}

void pack_panel(TensorType type, const uint8_t* source, int rows, int columns, int index, uint8_t* out) {
  const TypeTraits source_type = traits(type);
  const size_t source_block = static_cast<size_t>(kBlock / source_type.block_values) * source_type.block_bytes;
  const size_t row_bytes = source_block * static_cast<size_t>(columns / kBlock);
  const size_t out_block = block_bytes(type);
  const int first = index * kPanelRows;
  const int count = rows - first < kPanelRows ? rows - first : kPanelRows;
  if (count < kPanelRows) std::memset(out, 0, out_block * static_cast<size_t>(columns / kBlock));
  for (int row = 0; row < count; ++row) {
    const uint8_t* block = source + static_cast<size_t>(first + row) * row_bytes;
    for (int b = 0; b < columns / kBlock; ++b) {
      pack_block(type, block, row, out + static_cast<size_t>(b) * out_block);
      block += source_block;
    }
  }
}

}  // namespace assay
