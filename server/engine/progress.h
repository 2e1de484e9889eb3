// Who is told how much of a model's weights is loaded.
#pragma once

#include <cstdint>

#include "assay_engine.h"

namespace assay {

class Progress {
 public:
  explicit Progress(const assay_options& options) : tell_(options.progress), context_(options.progress_context) {}

  void begin(uint64_t total) {
    total_ = total;
    add(0);
  }

  void add(uint64_t bytes) {
    done_ += bytes;
    if (tell_ != nullptr) tell_(context_, done_, total_);
  }

 private:
  assay_progress tell_;
  void* context_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace assay
