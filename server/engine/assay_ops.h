/* Single operations of a backend, for tests that compare each with exact arithmetic.
 *
 * `isa` names the backend ("plain", "avx2", "avx512"). Weights are given as they lie in a
 * GGUF file (`type` is a number of tensor_type.h, `factor` the tensor's, rows are
 * contiguous) and packed inside. `form` is 0 for the decode form of an operation and 1 for the prefill
 * form. Each call returns an assay_status; arrays have the shapes said in ops.h.
 */
#ifndef ASSAY_OPS_H
#define ASSAY_OPS_H

#include "assay_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[columns]: what a row means (dequantise.h). Of no backend, so without `isa`. */
ASSAY_EXPORT int32_t assay_op_dequantise(uint32_t type, float factor, const uint8_t* row, int32_t columns, float* out);
ASSAY_EXPORT int32_t assay_op_embed(const char* isa, uint32_t type, float factor, const uint8_t* table, int32_t rows,
                                    int32_t columns, int32_t token, float* out);
ASSAY_EXPORT int32_t assay_op_rmsnorm(const char* isa, const float* x, const float* weight, int32_t n, float epsilon,
                                      float* out);
/* q, scale, sum: [n / 32 + refinements] blocks; refined: which block each residual belongs to. */
ASSAY_EXPORT int32_t assay_op_quantise(const char* isa, const float* x, int32_t n, int8_t* q, float* scale, float* sum,
                                       int32_t* refined, int32_t refinements);
/* out[count][rows] = x[count][columns] times the transposed weights, added to what is there when `add`. */
ASSAY_EXPORT int32_t assay_op_qlinear(const char* isa, int32_t form, uint32_t type, float factor,
                                      const uint8_t* weights, int32_t rows, int32_t columns, const float* x,
                                      int32_t count, int32_t refinements, int32_t add, float* out);
ASSAY_EXPORT int32_t assay_op_rope(const char* isa, float* head, int32_t rope_dim, const float* cosine,
                                   const float* sine);
/* Positions interleaved in the keys of a block (ops.h). */
ASSAY_EXPORT int32_t assay_op_key_lane(const char* isa, int32_t* lane);
/* Writes keys and values [positions][head_dim] one by one into blocks of 128 positions (ops.h), one after the other.
 * `type` is 0 for halves, 1 for int8 and 2 for q4. */
ASSAY_EXPORT int32_t assay_op_kv_write(const char* isa, int32_t type, const float* keys, const float* values,
                                       int32_t head_dim, int32_t positions, uint8_t* blocks);
/* out[count][head_dim] of queries q[count][head_dim], query i seeing positions below visible[i]; count is at most
 * what the backend computes together, which is 6 or more. */
ASSAY_EXPORT int32_t assay_op_attention(const char* isa, int32_t form, int32_t type, const float* q,
                                        const int32_t* visible, int32_t count, int32_t head_dim, const float* keys,
                                        const float* values, int32_t positions, float* out);
ASSAY_EXPORT int32_t assay_op_silu_mul(const char* isa, const float* gate, const float* up, int32_t n, float* out);
/* `count` rows of a described tensor from `first` on, in row form (row_source.h): `size` bytes. `head`: as a head would
 * be read of which assay_options asks that; NULL: as it is stored. Says why it fails. */
ASSAY_EXPORT int32_t assay_op_rows(const assay_tensor_source* source, const char* head, int32_t first, int32_t count,
                                   uint8_t* out, uint64_t size, char* error, size_t error_size);
ASSAY_EXPORT int32_t assay_op_argmax(const char* isa, const float* x, int32_t n, int32_t* index);

#ifdef __cplusplus
}
#endif
#endif
