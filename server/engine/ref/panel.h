// Single values out of a packed column block (layout: packed.h).
#pragma once

#include <cstring>

#include "../half.h"
#include "../packed.h"

namespace assay::ref {

class PanelBlock {
 public:
  PanelBlock(TensorType type, const uint8_t* bytes) : type_(type), bytes_(bytes) {}

  float scale(int row) const { return half(2 * row); }
  float minimum(int row) const { return half(32 + 2 * row); }  // Q4_1

  // The stored integer: 0 to 15 (Q4_1), -8 to 7 (Q4_0), -128 to 127 (Q8_0).
  int integer(int row, int column) const {
    if (type_ == TensorType::q8_0) {
      return static_cast<int8_t>(bytes_[32 + at(row, column)]);
    }
    const bool has_minimum = type_ == TensorType::q4_1;
    const uint8_t pair = bytes_[(has_minimum ? 64 : 32) + at(row, column % 16)];
    const int nibble = column < 16 ? pair & 15 : pair >> 4;
    return has_minimum ? nibble : nibble - 8;
  }

  float value(int row, int column) const {
    switch (form_of(type_)) {
      case Form::f32: {
        float value;
        std::memcpy(&value, bytes_ + 4 * (column * kPanelRows + row), sizeof value);
        return value;
      }
      case Form::f16:
        return half(2 * (column * kPanelRows + row));
      case Form::q4_1:
        return scale(row) * static_cast<float>(integer(row, column)) + minimum(row);
      case Form::q4_0:
      case Form::q8_0:
        return scale(row) * static_cast<float>(integer(row, column));
      case Form::none:
        break;
    }
    return 0.0f;
  }

 private:
  static int at(int row, int column) { return column / 4 * 64 + row * 4 + column % 4; }

  float half(int offset) const {
    uint16_t bits;
    std::memcpy(&bits, bytes_ + offset, sizeof bits);
    return half_to_float(bits);
  }

  TensorType type_;
  const uint8_t* bytes_;
};

}  // namespace assay::ref
