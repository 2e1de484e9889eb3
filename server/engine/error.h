// The engine's one error type. It is thrown inside the library and turned into
// a status and a message at the C border (abi.cpp).
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

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

// A name that a file gave, in quotes and fit for a message: printable, and no longer than a reader needs.
inline std::string quoted(std::string_view name) {
  constexpr size_t kMostShown = 80;
  std::string shown = "'";
  for (const char c : name.substr(0, kMostShown)) {
    if (c >= ' ' && c <= '~') {
      shown += c;
      continue;
    }
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    shown += escaped;
  }
  return shown + (name.size() > kMostShown ? "'... (" + std::to_string(name.size()) + " bytes)" : "'");
}

}  // namespace assay
