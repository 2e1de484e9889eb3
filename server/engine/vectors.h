// A model's float vectors (norms, gates, convolutions) as every device computes with them.
//
// In a GGUF they lie so already; a safetensors author stores some of qwen35's
// otherwise (Config::raw). They are few, and read whole.
#pragma once

#include <vector>

#include "config.h"
#include "gguf.h"

namespace assay {

// Every value, row after row. Error naming the tensor when it is not of F32, F16 or BF16.
std::vector<float> read_vector(const Tensor& tensor);

// The weights of a norm. (ssm_norm is a plain vector.)
std::vector<float> read_norm(const Tensor& tensor, const Config& config);

// ssm_a: what a head's step is multiplied with to be its log decay; below 0.
std::vector<float> read_decay(const Tensor& tensor, const Config& config);

// ssm_conv1d as [conv][channels], the oldest position first.
std::vector<float> read_conv(const Tensor& tensor);

}  // namespace assay
