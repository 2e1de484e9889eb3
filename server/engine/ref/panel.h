// Single values out of a packed column block (layout: packed.h).
#pragma once

#include <cstring>

#include "../half.h"
#include "../packed.h"

namespace assay::ref {

class PanelBlock {
 public:
  PanelBlock(TensorType type, const uint8_t* bytes) : form_(form_of(type)), bytes_(bytes) {}

  // The scale of columns 0 to 15 (`part` 0) or 16 to 31.
  float scale(int row, int part) const {
    switch (form_) {
      case Form::nibbles:
      case Form::sixes:
        return number(4 * row);
      case Form::halved_sixes:
        return number(64 * part + 4 * row);
      default:
        return half(2 * row);
    }
  }

  bool has_minimum() const { return form_ == Form::q4_1 || form_ == Form::nibbles || form_ == Form::sixes; }
  float minimum(int row) const { return form_ == Form::q4_1 ? half(32 + 2 * row) : number(64 + 4 * row); }

  // The stored integer: 0 to 15 (with a minimum) or -8 to 7 (without) of nibbles, -32 to 31 of sixes, a byte.
  int integer(int row, int column) const {
    switch (form_) {
      case Form::q8_0:
        return static_cast<int8_t>(bytes_[32 + at(row, column)]);
      case Form::q4_0:
        return nibble(32, row, column) - 8;
      case Form::q4_1:
        return nibble(64, row, column);
      case Form::nibbles:
        return nibble(128, row, column);
      default:
        return (nibble(128, row, column) | (high_bits(row, column) << 4)) - 32;
    }
  }

  float value(int row, int column) const {
    switch (form_) {
      case Form::f32:
        return number(4 * (column * kPanelRows + row));
      case Form::f16:
        return half(2 * (column * kPanelRows + row));
      case Form::bf16:
        return bfloat_to_float(bits(2 * (column * kPanelRows + row)));
      default: {
        const float product = scale(row, column / 16) * static_cast<float>(integer(row, column));
        return has_minimum() ? product + minimum(row) : product;
      }
    }
  }

 private:
  static int at(int row, int column) { return column / 4 * 64 + row * 4 + column % 4; }

  int nibble(int header, int row, int column) const {
    const uint8_t pair = bytes_[header + at(row, column % 16)];
    return column < 16 ? pair & 15 : pair >> 4;
  }

  int high_bits(int row, int column) const {
    const int vector = column % 16 / 4;
    const uint8_t fields = bytes_[384 + vector / 2 * 64 + row * 4 + column % 4];
    return (fields >> (vector % 2 * 4 + column / 16 * 2)) & 3;
  }

  uint16_t bits(int offset) const {
    uint16_t bits;
    std::memcpy(&bits, bytes_ + offset, sizeof bits);
    return bits;
  }

  float half(int offset) const { return half_to_float(bits(offset)); }

  float number(int offset) const {
    float value;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }

  Form form_;
  const uint8_t* bytes_;
};

}  // namespace assay::ref
