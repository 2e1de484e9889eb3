// The AVX2 + FMA + F16C backend.
//
// Only this room's files are compiled for these instructions. They define no
// function that another room could share (templates and inline functions of
// theirs are in unnamed namespaces), or the linker might hand an AVX2 copy to a
// CPU without it; build.py links this room last for the same reason.
#pragma once

#include "../ops.h"

namespace assay::cpu {

constexpr int kKeyLane = 8;
constexpr int kDecodeRows = 8;
constexpr int kTileQueries = 6;

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
void delta(const DeltaRows& rows, const DeltaState& chunk);
void delta_fold(const DeltaState& chunk);
void silu_mul(const float* gate, const float* up, int n, float* out);
void sigmoid_mul(const float* gate, int n, float* x);
int argmax(const float* x, int n);

}  // namespace assay::cpu
