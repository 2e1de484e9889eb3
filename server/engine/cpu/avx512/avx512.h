// The AVX-512 backend (F, BW, DQ, VL and VNNI).
//
// Only this room's files are compiled for these instructions, with the same
// care as the AVX2 room's (cpu.h). What gains nothing from wider registers is
// AVX2's own function.
#pragma once

#include "../cpu.h"

namespace assay::cpu::avx512 {

constexpr int kKeyLane = 16;
constexpr int kTileQueries = 12;

void rmsnorm(const float* x, const float* weight, int n, float epsilon, float* out);
void quantise(const float* x, int n, const QuantisedRow& row);
void qlinear_decode(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output);
void qlinear_prefill(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output,
                     uint8_t* scratch);
void silu_mul(const float* gate, const float* up, int n, float* out);
void kv_write(const float* key, const float* value, int head_dim, KvType type, int position, uint8_t* block);
void attention_decode(const Queries& queries, const uint8_t* block, const uint8_t* next, int first, float* partials,
                      size_t stride);
void attention_prefill(const Queries& queries, const uint8_t* const* blocks, float* const* outputs);

}  // namespace assay::cpu::avx512
