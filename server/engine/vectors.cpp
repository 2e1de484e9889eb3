#include "vectors.h"

#include <cmath>

#include "dequantise.h"
#include "error.h"
#include "row_source.h"

namespace assay {

std::vector<float> read_vector(const Tensor& tensor) {
  if (tensor.type != TensorType::f32 && tensor.type != TensorType::f16 && tensor.type != TensorType::bf16) {
    unsupported("tensor " + quoted(tensor.name) + " is " + traits(tensor.type).name +
                "; norms and other vectors must be F32, F16 or BF16");
  }
  std::vector<uint8_t> room;
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.columns));
  const int rows = static_cast<int>(tensor.rows);
  const uint8_t* bytes = read_rows(tensor, 0, rows, room);
  for (int row = 0; row < rows; ++row) {
    dequantise(tensor.type, tensor.factor, bytes + static_cast<size_t>(row) * row_bytes(tensor),
               static_cast<int>(tensor.columns), values.data() + static_cast<size_t>(row) * tensor.columns);
  }
  return values;
}

std::vector<float> read_norm(const Tensor& tensor, const Config& config) {
  std::vector<float> values = read_vector(tensor);
  if (config.raw && config.architecture == Architecture::qwen35) {
    for (float& value : values) value += 1.0f;
  }
  return values;
}

std::vector<float> read_decay(const Tensor& tensor, const Config& config) {
  std::vector<float> values = read_vector(tensor);
  if (config.raw) {
    for (float& value : values) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  }
  return values;
}

std::vector<float> read_conv(const Tensor& tensor) {
  const std::vector<float> stored = read_vector(tensor);
  const size_t channels = static_cast<size_t>(tensor.rows), taps = static_cast<size_t>(tensor.columns);
  std::vector<float> values(stored.size());
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t tap = 0; tap < taps; ++tap) values[tap * channels + channel] = stored[channel * taps + tap];
  }
  return values;
}

}  // namespace assay
