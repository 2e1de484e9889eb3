// The calls of assay_engine.h on top of assay::Opening, assay::Engine and assay::detect_isa, whichever device those
// are of.
//
// It defines them: exactly one file of a library includes it, behind its engine's header.
#pragma once

#include "assay_engine.h"
#include "border.h"

struct assay_engine {
  assay::Engine engine;
};

namespace assay {

inline assay_metadata native(const Metadata& entry) {
  return {entry.key.data(),
          entry.key.size(),
          entry.bytes,
          entry.byte_size,
          entry.count,
          static_cast<uint32_t>(entry.type),
          static_cast<uint32_t>(entry.item_type)};
}

}  // namespace assay

int32_t assay_inspect(const assay_options* options, assay_inspection* found, assay_visit visit, void* context,
                      char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    if (options == nullptr || found == nullptr) assay::bad_argument("no options, or no place for what is found");
    const assay::Opening opening(*options);
    found->abi_version = ASSAY_ABI_VERSION;
    found->context = opening.context;
    found->vocabulary = opening.config.vocabulary;
    if (visit == nullptr) return;
    for (const assay::Metadata& each : opening.file.entries()) {
      const assay_metadata entry = assay::native(each);
      visit(context, &entry);
    }
  });
}

int32_t assay_open(const assay_options* options, assay_engine** engine, char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
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
  *entry = assay::native(engine->engine.metadata()[index]);
  return ASSAY_OK;
}

int32_t assay_step(assay_engine* engine, const assay_chunk* chunks, size_t chunk_count, float* logits, int32_t* greedy,
                   size_t rows, char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    if (engine == nullptr) assay::bad_argument("no engine");
    engine->engine.step(chunks, chunk_count, logits, greedy, rows);
  });
}

int32_t assay_fork(assay_engine* engine, int32_t source_slot, int32_t slot, int32_t positions, char* error,
                   size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    if (engine == nullptr) assay::bad_argument("no engine");
    engine->engine.fork(source_slot, slot, positions);
  });
}

int32_t assay_length(assay_engine* engine, int32_t slot) {
  return engine == nullptr ? -1 : engine->engine.length(slot);
}

int32_t assay_rewindable(assay_engine* engine, int32_t slot) {
  return engine == nullptr ? -1 : engine->engine.rewindable(slot);
}

const char* assay_detect_isa(void) { return assay::detect_isa(); }
