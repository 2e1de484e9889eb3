// The C border: what is thrown inside becomes a status and a message outside.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include "error.h"

namespace assay {

inline void report(const char* message, char* error, size_t error_size) {
  if (error != nullptr && error_size != 0) std::snprintf(error, error_size, "%s", message);
}

template <typename Body>
int32_t guarded(char* error, size_t error_size, const Body& body) {
  try {
    body();
    return ASSAY_OK;
  } catch (const Error& failure) {
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

}  // namespace assay
