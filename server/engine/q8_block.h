// 32 floats as a block of Q8_0: the bytes that the `gguf` package makes of them.
//
// A block is the half d = largest / 127, then 32 integers, each value / d rounded to nearest, ties away from zero
// (the quotient is taken with 1 / d before d is rounded to a half, as there). Where the largest magnitude is
// infinite or NaN so is d; the package leaves the integers of what has no finite quotient to the processor, and
// here those of the whole block are 0. That concerns such a block, and one of magnitudes below 2^-121, whose half
// is 0 anyway. Beyond 127 * 65520 d is infinite too.
#pragma once

#include <cstdint>

namespace assay {

constexpr int kQ8Values = 32;
constexpr int kQ8Bytes = 34;

void quantise_q8(const float* values, uint8_t* block);

}  // namespace assay
