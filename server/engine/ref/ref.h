// The plain backend: portable C++, no intrinsics, written to be read.
//
// It is the reference every other backend is compared with, and what serves on
// a CPU without AVX2.
#pragma once

#include "../ops.h"

namespace assay::ref {

constexpr int kKeyLane = 8;

void embed(const Packed& table, int token, float* out);
void rmsnorm(const float* x, const float* weight, int n, float epsilon, float* out);
void quantise(const float* x, int n, const QuantisedRow& row);
void qlinear_decode(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output);
void qlinear_prefill(const Packed& matrix, int begin, int end, const Rows& rows, const Output& output,
                     uint8_t* scratch);
void rope(float* head, int rope_dim, const float* cosine, const float* sine);
void rope_halves(float* head, int rope_dim, const float* cosine, const float* sine);
void kv_write(const float* key, const float* value, int head_dim, KvType type, int position, uint8_t* block);
void attention_decode(const Queries& queries, const uint8_t* block, const uint8_t* next, int first, float* partials,
                      size_t stride);
void attention_fold(const float* partials, int count, int head_dim, float* out);
void attention_prefill(const Queries& queries, const uint8_t* const* blocks, float* const* outputs);
void conv1d(const float* const* rows, const float* weights, size_t stride, int taps, int n, float* out);
void delta_gates(const float* alpha, const float* beta, const float* a, const float* bias, int n, float* decay,
                 float* learned);
void delta(const DeltaRows& rows, const DeltaState& chunk);
void delta_fold(const DeltaState& chunk);
void silu_mul(const float* gate, const float* up, int n, float* out);
void sigmoid_mul(const float* gate, int n, float* x);
int argmax(const float* x, int n);

// e^x by range reduction and a polynomial of degree 6 (relative error below
// 2e-7): the same bits whatever the system's libm. x is clamped to [-87, 88].
float exp(float x);

}  // namespace assay::ref
