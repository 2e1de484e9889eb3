/* Single operations of the Qwen families' layers, for tests that compare each with exact arithmetic.
 *
 * Conventions as in assay_ops.h: `isa` names the backend, each call returns an
 * assay_status, arrays are dense and row-major.
 */
#ifndef ASSAY_HYBRID_OPS_H
#define ASSAY_HYBRID_OPS_H

#include "assay_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A query or key head in place: RMSNorm with norm[head_dim] where that is given, then rope over the first rope_dim
 * values: style 0 turns pairs (2i, 2i + 1), style 1 the halves (i, i + rope_dim / 2). */
ASSAY_EXPORT int32_t assay_op_head(const char* isa, int32_t style, float* head, int32_t head_dim, const float* norm,
                                   float epsilon, int32_t rope_dim, const float* cosine, const float* sine);
/* Cosines and sines [rope_dim / 2] of a token at three positions, of which `sections` says how many pairs turn by each,
 * interleaved (rope_table.h); the same on every device. */
ASSAY_EXPORT int32_t assay_op_rope_row(int32_t rope_dim, double base, const int32_t* sections,
                                       const int32_t* positions, float* cosine, float* sine);
/* out = x / (1 + exp(-gate)). */
ASSAY_EXPORT int32_t assay_op_sigmoid_mul(const char* isa, const float* x, const float* gate, int32_t n, float* out);
/* out[rows][channels]: the depthwise causal convolution of x[conv - 1 + rows][channels] with weight[channels][conv],
 * then SiLU. */
ASSAY_EXPORT int32_t assay_op_conv1d(const char* isa, const float* x, const float* weight, int32_t rows,
                                     int32_t channels, int32_t conv, float* out);
/* out[rows][value_heads][value_dim] of the gated delta rule from position 0 on (delta.h), fed as `cut_count` runs of
 * cuts[i] rows each. qkv[rows][2 * key_heads * key_dim + value_heads * value_dim] are queries, keys and values after
 * the convolution, a and b [rows][value_heads]; the log decay is decay[head] * softplus(a + dt[head]), beta is
 * sigmoid(b). Value head h has key head h / (value_heads / key_heads) when `grouped`, else h % key_heads. */
ASSAY_EXPORT int32_t assay_op_delta(const char* isa, int32_t key_heads, int32_t value_heads, int32_t key_dim,
                                    int32_t value_dim, int32_t grouped, const float* qkv, const float* a,
                                    const float* b, const float* decay, const float* dt, int32_t rows,
                                    const int32_t* cuts, int32_t cut_count, float* out);
/* out[heads][head_dim]: each head's RMSNorm with weight[head_dim], times SiLU(gate). */
ASSAY_EXPORT int32_t assay_op_gated_norm(const char* isa, const float* x, const float* weight, const float* gate,
                                         int32_t heads, int32_t head_dim, float epsilon, float* out);

#ifdef __cplusplus
}
#endif
#endif
