// A run: 32 values of a row, as integers, two scales and a minimum.
//
// Every type of blocks of integers is read through this one form, into the
// processor's panels and by the tests' dequantised values alike:
//   value[i] = scale[i / 16] * integer[i], and + minimum where the type has one
// each step rounded to float. K-quants multiply a block's scale by that of a run
// here, and Q6_K and NVFP4 alone have two scales that differ.
#pragma once

#include <cstdint>

#include "tensor_type.h"

namespace assay {

constexpr int kRunValues = 32;

struct Run {
  int8_t integer[kRunValues];
  float scale[2];  // of values 0 to 15 and 16 to 31
  float minimum;   // 0 where has_minimum is false
};

bool has_minimum(TensorType type);

// Run `index` of a row of a type that is no float's. NVFP4's integers are twice its
// nibbles' values, its scales half of E4M3 / factor.
void read_run(TensorType type, float factor, const uint8_t* row, int64_t index, Run& run);

}  // namespace assay
