#include "packed.h"

#include <cstring>

#include "run.h"

namespace assay {
namespace {

// Where byte `column` (of 16 for nibbles, of 32 for bytes) of a row goes.
int interleaved(int row, int column) { return column / 4 * 64 + row * 4 + column % 4; }

void pack_nibbles(const uint8_t* pairs, int row, uint8_t* out) {
  for (int column = 0; column < 16; ++column) out[interleaved(row, column)] = pairs[column];
}

void pack_items(const uint8_t* items, int bytes, int row, uint8_t* out) {
  for (int column = 0; column < kBlock; ++column) {
    std::memcpy(out + bytes * (column * kPanelRows + row), items + bytes * column, static_cast<size_t>(bytes));
  }
}

void pack_floats(float first, float second, int row, uint8_t* out) {
  std::memcpy(out + 4 * row, &first, sizeof first);
  std::memcpy(out + 64 + 4 * row, &second, sizeof second);
}

// Integers of 0 to 15, or of -8 to 7, whose offset becomes a minimum: 8 is a power of two, so that is exact.
void pack_nibble_run(const Run& run, bool minimum, int row, uint8_t* out) {
  const int offset = minimum ? 0 : 8;
  uint8_t pairs[16];
  for (int column = 0; column < 16; ++column) {
    pairs[column] =
        static_cast<uint8_t>((run.integer[column] + offset) | ((run.integer[16 + column] + offset) << 4));
  }
  pack_floats(run.scale[0], minimum ? run.minimum : -8.0f * run.scale[0], row, out);
  pack_nibbles(pairs, row, out + 128);
}

void pack_six_run(const Run& run, float second, int row, uint8_t* out) {
  pack_floats(run.scale[0], second, row, out);
  for (int column = 0; column < 16; ++column) {
    const int low = run.integer[column] + 32;
    const int high = run.integer[16 + column] + 32;
    const int vector = column / 4;
    out[128 + interleaved(row, column)] = static_cast<uint8_t>((low & 15) | ((high & 15) << 4));
    uint8_t& bits = out[384 + vector / 2 * 64 + row * 4 + column % 4];
    const int fresh = ((low >> 4) | ((high >> 4) << 2)) << (vector % 2 * 4);
    bits = static_cast<uint8_t>(vector % 2 == 0 ? fresh : bits | fresh);
  }
}

void pack_block(TensorType type, float factor, const uint8_t* row_start, int block, int row, uint8_t* out) {
  const TypeTraits stored = traits(type);
  const auto of_block = [&] { return row_start + static_cast<int64_t>(block) * stored.block_bytes; };
  Run run;
  switch (form_of(type)) {
    case Form::f32:
      return pack_items(row_start + static_cast<int64_t>(block) * kBlock * 4, 4, row, out);
    case Form::f16:
    case Form::bf16:
      return pack_items(row_start + static_cast<int64_t>(block) * kBlock * 2, 2, row, out);
    case Form::q4_1:
      std::memcpy(out + 2 * row, of_block(), 2);
      std::memcpy(out + 32 + 2 * row, of_block() + 2, 2);
      return pack_nibbles(of_block() + 4, row, out + 64);
    case Form::q4_0:
      std::memcpy(out + 2 * row, of_block(), 2);
      return pack_nibbles(of_block() + 2, row, out + 32);
    case Form::q8_0:
      std::memcpy(out + 2 * row, of_block(), 2);
      for (int column = 0; column < kBlock; ++column) out[32 + interleaved(row, column)] = of_block()[2 + column];
      return;
    case Form::nibbles:
      read_run(type, factor, row_start, block, run);
      return pack_nibble_run(run, has_minimum(type), row, out);
    case Form::sixes:
      read_run(type, factor, row_start, block, run);
      return pack_six_run(run, run.minimum, row, out);
    case Form::halved_sixes:
      read_run(type, factor, row_start, block, run);
      return pack_six_run(run, run.scale[1], row, out);
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
    case Form::nibbles:
      return 384;
    case Form::sixes:
    case Form::halved_sixes:
      return 512;
    case Form::f16:
    case Form::bf16:
      return 1024;
    case Form::f32:
      return 2048;
  }
  return 0;
}

void pack_panel(TensorType type, const uint8_t* source, int rows, int columns, int index, uint8_t* out,
                float factor) {
  const TypeTraits stored = traits(type);
  const size_t row_bytes = static_cast<size_t>(columns) / stored.block_values * stored.block_bytes;
  const size_t out_block = block_bytes(type);
  const int first = index * kPanelRows;
  const int count = rows - first < kPanelRows ? rows - first : kPanelRows;
  if (count < kPanelRows) std::memset(out, 0, out_block * static_cast<size_t>(columns / kBlock));
  for (int row = 0; row < count; ++row) {
    const uint8_t* row_start = source + static_cast<size_t>(first + row) * row_bytes;
    for (int block = 0; block < columns / kBlock; ++block) {
      pack_block(type, factor, row_start, block, row, out + static_cast<size_t>(block) * out_block);
    }
  }
}

}  // namespace assay
