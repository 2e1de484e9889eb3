// What is known of an engine from its options and a model's header alone.
//
// Everything that opening refuses without a look at the weights is refused here, so assay_inspect and assay_open
// cannot disagree: both begin with this.
#pragma once

#include "config.h"
#include "model_file.h"
#include "ops.h"

namespace assay {

struct Opening {
  // Error: the options break a rule, or the model is not one that this engine serves.
  explicit Opening(const assay_options& options);

  const Ops* ops;
  int threads;
  int slots;
  ModelFile file;
  Config config;
  int context;
  KvType kv;
};

}  // namespace assay
