/* The engine's C ABI: the one door between Python (ctypes) and the C++ engine.
 *
 * Conventions: every call that can fail returns an assay_status and writes a
 * NUL-terminated message (what is wrong and why) into the caller's `error`
 * buffer; no C++ exception crosses this border; handles are opaque; all
 * integers have a fixed width; strings are UTF-8 and NUL-terminated.
 *
 * A handle may be used by one thread at a time (a second caller waits).
 * The answer of a token is the same bytes whatever else is in the step, however
 * its sequence was cut into chunks, and at any thread count; it depends on the
 * file, the build and the instruction set only.
 */
#ifndef ASSAY_ENGINE_H
#define ASSAY_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define ASSAY_ABI_VERSION 5
#define ASSAY_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum assay_status {
  ASSAY_OK = 0,
  ASSAY_BAD_FILE = 1,     /* not a readable model, or one that contradicts itself */
  ASSAY_UNSUPPORTED = 2,  /* a well-formed file or request this build cannot serve */
  ASSAY_BAD_ARGUMENT = 3, /* the caller broke a rule of this header */
  ASSAY_NO_MEMORY = 4,
  ASSAY_INTERNAL = 5
} assay_status;

typedef enum assay_logits { ASSAY_LOGITS_NONE = 0, ASSAY_LOGITS_LAST = 1, ASSAY_LOGITS_ALL = 2 } assay_logits;

typedef struct assay_engine assay_engine;

/* One metadata entry, as it lies in the file (little endian), already checked
 * to be whole. `type` and `item_type` are GGUF value types; for an array `type`
 * is 9 and `bytes` holds `count` items, each string as a u64 length and bytes.
 * Given by the engine it is the engine's and valid until assay_close; given to
 * it, it must last as long as the call. */
typedef struct assay_metadata {
  const char* key;
  uint64_t key_size;
  const uint8_t* bytes;
  uint64_t byte_size;
  uint64_t count;
  uint32_t type;
  uint32_t item_type;
} assay_metadata;

/* How a tensor that assay_tensor_source describes lies in its file (little endian). */
typedef enum assay_storage {
  /* rows one behind the other, of the type F32 (0), F16 (1) or BF16 (30); no scales */
  ASSAY_STORAGE_ROWS = 0,
  /* compressed-tensors' pack-quantized: int32 [rows][columns / 8], eight nibbles each, the lowest bits
   * first, 8 meaning zero; scales of 16 bits [rows][columns / 128]; type 1000 (F16 scales) or 1001 (BF16) */
  ASSAY_STORAGE_PACKED = 1,
  /* GPTQ's, without its zeros (all 8) and order (as it stands): int32 [columns / 8][rows]; scales of 16
   * bits [columns / 128][rows]; type 1000 or 1001 */
  ASSAY_STORAGE_GPTQ = 2,
  /* compressed-tensors' nvfp4-pack-quantized: bytes [rows][columns / 2], two E2M1 values each, the low
   * nibble first; E4M3 scales [rows][columns / 16], to be divided by `factor`; type 1002 */
  ASSAY_STORAGE_NVFP4 = 3
} assay_storage;

/* One tensor of a model that is no GGUF file, by the name GGUF has for it. */
typedef struct assay_tensor_source {
  const char* name;
  const char* path; /* of the file it lies in */
  uint64_t offset;  /* of its first byte there */
  uint64_t size;    /* in bytes, exactly what its shape, type and storage ask for */
  const char* scale_path; /* NULL without scales */
  uint64_t scale_offset;
  uint64_t scale_size;
  uint64_t columns; /* of the matrix as it is multiplied; a vector has one row */
  uint64_t rows;
  uint32_t type;    /* as GGUF numbers it, or one of assay_storage */
  uint32_t storage; /* an assay_storage */
  float factor;     /* above 0; 1 where the storage has none */
} assay_tensor_source;

/* Called from assay_open while weights go to a device: so many bytes of the file's are done. */
typedef void (*assay_progress)(void* context, uint64_t done_bytes, uint64_t total_bytes);

typedef struct assay_options {
  const char* path; /* the GGUF file; not read where there are tensors */
  const char* isa;  /* "avx512", "avx2", "plain", or NULL: the best this CPU has */
  const char* kv;   /* keys and values as "f16", "int8" or "q4"; NULL: "f16" */
  const char* head; /* the output head as "stored", or of floats as "q8_0"; NULL: "stored" */
  int32_t threads;  /* 1 to 256 */
  int32_t slots;    /* sequences held at once, 1 to 1024 */
  int32_t context;  /* positions a slot can hold; 0: min(the model's, 8192) */
  /* A model that is no GGUF file, as its author stores it: see architecture.md, "Where a model comes
   * from". NULL: it is the GGUF file. Read during the call only. */
  const assay_tensor_source* tensors;
  size_t tensor_count;
  const assay_metadata* metadata;
  size_t metadata_count;
  int32_t kept_slots;      /* of the slots, those that together hold at most kept_positions; 0: none */
  int64_t kept_positions;  /* a device has memory for no more; the CPU does not reserve any */
  uint64_t memory_bytes;   /* of a device, that may be taken, driver included; 0: what is free */
  assay_progress progress; /* or NULL */
  void* progress_context;
} assay_options;

/* What the header of a model says of the engine that it would be. */
typedef struct assay_inspection {
  int32_t abi_version;
  int32_t context; /* positions a slot would hold */
  int32_t vocabulary;
} assay_inspection;

/* Called from assay_inspect with each metadata entry; the entry is good until it returns. */
typedef void (*assay_visit)(void* context, const assay_metadata* entry);

typedef struct assay_info {
  int32_t abi_version;
  int32_t threads;
  int32_t slots;
  int32_t context;
  int32_t vocabulary;
  int32_t prefill_chunk; /* rows computed together at most */
  uint64_t weight_bytes; /* read once for every decode step */
  uint64_t kv_bytes_per_position;
  int32_t state_chunk; /* a state of the sequence is kept as of multiples of so many positions; 0: there is none */
  int32_t rewind;      /* positions that it can be taken back by at most, not past such a multiple */
  const char* isa;  /* owned by the library */
  const char* kv;   /* owned by the library */
  const char* head; /* owned by the library */
} assay_info;

/* Consecutive tokens of one slot, written from `position` on. Everything the
 * slot held at `position` and later is forgotten first. */
typedef struct assay_chunk {
  const int32_t* tokens;
  int32_t count; /* at least 1 */
  int32_t slot;
  int32_t position; /* at most the slot's length: no gaps; 0, or at least assay_rewindable */
  int32_t logits;   /* an assay_logits */
} assay_chunk;

/* Bytes of device memory that a model as opened by assay_options takes, on any CUDA device. */
typedef struct assay_memory {
  int32_t slots;   /* kept ones included */
  int32_t context;
  int32_t model_context;   /* the most that the model was trained for */
  int32_t largest_context; /* with these slots, that fits into memory_bytes; 0: none does */
  int32_t largest_slots;   /* beside the kept ones, with this context; 0: none do */
  int32_t prefill_rows;    /* computed together at most */
  uint64_t weight_bytes;
  uint64_t kv_bytes;
  uint64_t state_bytes; /* recurrent state of every slot */
  uint64_t workspace_bytes;
  uint64_t loading_bytes; /* gone before keys, values and workspace are there */
  uint64_t graph_bytes;   /* allowance: launches that the driver keeps, and the rounding of allocations */
  uint64_t driver_bytes;  /* allowance: what a card keeps back, and a process's context on it */
  uint64_t total_bytes;   /* the most at once */
  uint64_t kv_bytes_per_position;
  uint64_t state_bytes_per_slot;
} assay_memory;

/* What a part of a step reads, writes and computes. */
typedef struct assay_work {
  uint64_t bytes;
  uint64_t int8_operations;   /* on matrix units */
  uint64_t half_operations;   /* on matrix units, summed in floats */
  uint64_t vector_operations; /* lanes of instructions, two each, as peaks of multiply-adds count them */
} assay_work;

/* A step of `sequences` of `rows` tokens each behind `position` others, and `logits` rows of logits; of these
 * the rest is counted. */
typedef struct assay_step_cost {
  int32_t sequences;
  int32_t rows;
  int32_t position;
  int32_t logits;
  assay_work products;  /* of weights, each read once */
  assay_work attention; /* with keys and values */
  assay_work delta;     /* gated delta layers, with their state */
  assay_work between;   /* what goes from one operation to the next */
} assay_step_cost;

/* Counts, from the file's header alone, what a CUDA device needs for a model, and what each of `steps` costs it; no
 * device is needed. */
ASSAY_EXPORT int32_t assay_plan(const assay_options* options, assay_memory* memory, assay_step_cost* steps,
                                size_t step_count, char* error, size_t error_size);

/* Refuses what assay_open would refuse with these options before it reads any weights, and reads none; `visit`, which
 * may be NULL, sees the metadata. What assay_open may find beyond it is that memory is short, or a file that changed. */
ASSAY_EXPORT int32_t assay_inspect(const assay_options* options, assay_inspection* found, assay_visit visit,
                                   void* context, char* error, size_t error_size);

ASSAY_EXPORT int32_t assay_open(const assay_options* options, assay_engine** engine, char* error, size_t error_size);
ASSAY_EXPORT void assay_close(assay_engine* engine); /* NULL is allowed */
ASSAY_EXPORT int32_t assay_describe(const assay_engine* engine, assay_info* info);
ASSAY_EXPORT uint64_t assay_metadata_count(const assay_engine* engine);
ASSAY_EXPORT int32_t assay_metadata_entry(const assay_engine* engine, uint64_t index, assay_metadata* entry);

/* Runs one batch; a slot may be in it once. Writes one row of `vocabulary`
 * floats into `logits`, and the lowest id of its largest value into `greedy`,
 * for each row asked for, in the order of the chunks. `rows` is the capacity of
 * both buffers in rows and must be exactly what the chunks ask for. On an error
 * nothing was written to any slot. */
ASSAY_EXPORT int32_t assay_step(assay_engine* engine, const assay_chunk* chunks, size_t chunk_count, float* logits,
                                int32_t* greedy, size_t rows, char* error, size_t error_size);

/* The slot now holds the first `positions` positions of `source_slot` (at most its length), as if
 * their tokens had been fed to it; memory is shared until one of them is written to. */
ASSAY_EXPORT int32_t assay_fork(assay_engine* engine, int32_t source_slot, int32_t slot, int32_t positions, char* error,
                                size_t error_size);

/* Positions a slot holds; -1: there is no such slot. */
ASSAY_EXPORT int32_t assay_length(assay_engine* engine, int32_t slot);

/* The fewest positions above 0 that the slot can be taken back to, by a chunk or a fork that begins there: a model
 * that keeps a state of its sequence forgets only some of the last positions, or all (0 is always allowed). 0: any
 * number; -1: there is no such slot. */
ASSAY_EXPORT int32_t assay_rewindable(assay_engine* engine, int32_t slot);

/* The best instruction set of this CPU that this build has a path for. */
ASSAY_EXPORT const char* assay_detect_isa(void);

/* Reads `bytes` once with `threads` threads `repeats` times and returns the
 * median seconds of a pass: the roof of decode, measured as the weights are
 * read. Returns a negative value when memory is short. */
ASSAY_EXPORT double assay_read_seconds(uint64_t bytes, int32_t threads, int32_t repeats);

#ifdef __cplusplus
}
#endif
#endif
