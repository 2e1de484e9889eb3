#include "dequantise.h"

#include <cstring>

#include "half.h"
#include "run.h"

namespace assay {
namespace {

constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

float rounded_to_half(float value) { return half_to_float(float_to_half(value)); }
float rounded_to_bfloat(float value) { return bfloat_to_float(float_to_bfloat(value)); }

template <float (*kWiden)(uint16_t)>
void widen(const uint8_t* row, int columns, float* out) {
  for (int i = 0; i < columns; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + 2 * static_cast<int64_t>(i), sizeof bits);
    out[i] = kWiden(bits);
  }
}

// Apart from the other types, since a run's integers (run.h) keep no sign of zero.
void dequantise_nvfp4(const uint8_t* row, float factor, int columns, float* out) {
  for (int64_t first = 0; first < columns; first += kRunValues, row += 18) {
    const float scale[2] = {e4m3_to_float(row[0]) / factor, e4m3_to_float(row[1]) / factor};
    for (int i = 0; i < 16; ++i) {
      out[first + i] = rounded_to_bfloat(kE2m1[row[2 + i] & 15] * scale[0]);
      out[first + 16 + i] = rounded_to_bfloat(kE2m1[row[2 + i] >> 4] * scale[1]);
    }
  }
}

}  // namespace

void dequantise(TensorType type, float factor, const uint8_t* row, int columns, float* out) {
  switch (type) {
    case TensorType::f32:
      std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float));
      return;
    case TensorType::f16:
      return widen<half_to_float>(row, columns, out);
    case TensorType::bf16:
      return widen<bfloat_to_float>(row, columns, out);
    case TensorType::nvfp4:
      return dequantise_nvfp4(row, factor, columns, out);
    default:
      break;
  }
  const bool minimum = has_minimum(type);
  Run run;
  for (int index = 0; index < columns / kRunValues; ++index) {
    read_run(type, factor, row, index, run);
    for (int i = 0; i < kRunValues; ++i) {
      float value = run.scale[i / 16] * static_cast<float>(run.integer[i]);
      if (minimum) value += run.minimum;
      if (type == TensorType::w4_f16) value = rounded_to_half(value);
      if (type == TensorType::w4_bf16) value = rounded_to_bfloat(value);
      out[static_cast<int64_t>(index) * kRunValues + i] = value;
    }
  }
}

}  // namespace assay
