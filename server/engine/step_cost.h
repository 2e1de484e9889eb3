// What a step of the CUDA engine reads, writes and computes, counted from the model's shapes as its kernels do it.
//
// Weights are read once a step. Instructions are those of the machine code for sm_86, a lane each. Where a product's
// activations are refined (ops.h) a matrix unit multiplies twice: in decode for the blocks that are, in prefill for all
// eight rows of a unit's tile as soon as one of them is. Attention works on tiles of 16 queries, each meeting keys and
// values in two halves. What goes from one operation to the next is counted where a step has more rows than the decode
// form: a device keeps less than that near.
#pragma once

#include "assay_engine.h"
#include "config.h"
#include "device_weights.h"
#include "kv_layout.h"

namespace assay {

// `sequences` of `rows` tokens each, behind `position` others, and `logits` rows of logits.
struct StepShape {
  int sequences;
  int rows;
  int position;
  int logits;
};

struct StepCost {
  assay_work products = {};
  assay_work attention = {};
  assay_work delta = {};
  assay_work between = {};
};

StepCost step_cost(const DeviceWeights& weights, const Config& config, KvType kv, const StepShape& shape);

}  // namespace assay
