/* What the device's library offers beside assay_engine.h and assay_ops.h: an operation
 * that the CPU leaves to Python, and measurements of the device to hold speeds against.
 *
 * Each call returns an assay_status; a message goes to `error` where there is one.
 */
#ifndef ASSAY_CUDA_H
#define ASSAY_CUDA_H

#include "../assay_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* index[row] = the first i of row x[row][n] whose cumulated weight exp((x[i] - max) / temperature)
 * exceeds uniform[row] (in [0, 1)) times the sum of all. */
ASSAY_EXPORT int32_t assay_op_sample(const char* isa, const float* x, int32_t n, int32_t rows, float temperature,
                                     const float* uniform, int32_t* index);

typedef struct assay_device {
  char name[256];
  int32_t multiprocessors;
  int32_t clock_khz;      /* the highest the device says it runs at */
  int32_t compute_major;
  int32_t compute_minor;
  uint64_t memory_bytes;
  uint64_t free_bytes;
} assay_device;

ASSAY_EXPORT int32_t assay_device_describe(assay_device* device, char* error, size_t error_size);

/* Median seconds, of `repeats`, of copying `bytes` from one place of device memory to another. */
ASSAY_EXPORT int32_t assay_device_copy_seconds(uint64_t bytes, int32_t repeats, double* seconds, char* error,
                                               size_t error_size);

/* Median seconds, of `repeats`, of `products` int8 matrix products (m16n8k32: 4096 multiplications each) by each of
 * `warps` warps a multiprocessor, and how many products that is on the whole device. */
ASSAY_EXPORT int32_t assay_device_matrix_seconds(int32_t products, int32_t warps, int32_t repeats, double* seconds,
                                                 uint64_t* total, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif
#endif
