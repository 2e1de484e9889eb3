// The engine's one error type. It is thrown inside the library and turned into
// a status and a message at the C border (abi.cpp).
#pragma once

#include <stdexcept>
#include <string>

#include "assay_engine.h"

namespace assay {

class Error : public std::runtime_error {
 public:
  Error(assay_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  assay_status status() const { return status_; }

 private:
  assay_status status_;
};

[[noreturn]] inline void bad_file(const std::string& message) { throw Error(ASSAY_BAD_FILE, message); }
[[noreturn]] inline void unsupported(const std::string& message) { throw Error(ASSAY_UNSUPPORTED, message); }
[[noreturn]] inline void bad_argument(const std::string& message) { throw Error(ASSAY_BAD_ARGUMENT, message); }

}  // namespace assay
