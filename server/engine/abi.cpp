// The C border: exceptions become a status and a message, nothing else happens here.
#include <cstdio>
#include <exception>
#include <new>

#include "assay_engine.h"
#include "engine.h"
#include "error.h"
#include "isa.h"

struct assay_engine {
  assay::Engine engine;
};

namespace {

void report(const char* message, char* error, size_t error_size) {
  if (error != nullptr && error_size != 0) std::snprintf(error, error_size, "%s", message);
}

template <typename Body>
int32_t guarded(char* error, size_t error_size, const Body& body) {
  try {
    body();
    return ASSAY_OK;
  } catch (const assay::Error& failure) {
    report(failure.what(), error, error_size);
    return failure.status();
  } catch (const std::bad_alloc&) {
    report("out of memory", error, error_size);
    return ASSAY_NO_MEMORY;
  } catch (const std::exception& failure) {
    report(failure.what(), error, error_size);
    return ASSAY_INTERNAL;
  }
}

}  // namespace

int32_t assay_open(const assay_options* options, assay_engine** engine, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    if (options == nullptr || engine == nullptr) assay::bad_argument("no options or no place for the handle");
    *engine = new assay_engine{assay::Engine(*options)};
  });
}

void assay_close(assay_engine* engine) { delete engine; }

int32_t assay_describe(const assay_engine* engine, assay_info* info) {
  if (engine == nullptr || info == nullptr) return ASSAY_BAD_ARGUMENT;
  engine->engine.describe(*info);
  return ASSAY_OK;
}

uint64_t assay_metadata_count(const assay_engine* engine) {
  return engine == nullptr ? 0 : engine->engine.metadata().size();
}

int32_t assay_metadata_entry(const assay_engine* engine, uint64_t index, assay_metadata* entry) {
  if (engine == nullptr || entry == nullptr || index >= engine->engine.metadata().size()) return ASSAY_BAD_ARGUMENT;
  const assay::Metadata& found = engine->engine.metadata()[index];
  entry->key = found.key.data();
  entry->key_size = found.key.size();
  entry->bytes = found.bytes;
  entry->byte_size = found.byte_size;
  entry->count = found.count;
  entry->type = static_cast<uint32_t>(found.type);
  entry->item_type = static_cast<uint32_t>(found.item_type);
  return ASSAY_OK;
}

int32_t assay_step(assay_engine* engine, const assay_chunk* chunks, size_t chunk_count, float* logits, int32_t* greedy,
                   size_t rows, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    if (engine == nullptr) assay::bad_argument("no engine");
    engine->engine.step(chunks, chunk_count, logits, greedy, rows);
  });
}

const char* assay_detect_isa(void) { return assay::detect_isa(); }
