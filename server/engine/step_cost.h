// What a step of the CUDA engine reads, writes and computes, counted from the model's shapes as its kernels do it.
//
// Weights are read once a step. Where a product's activations are refined (ops.h) a matrix unit multiplies
// twice: in decode for the blocks that are, in prefill for all eight rows of a unit's tile as soon as one of
// them is. Attention works on tiles of 16 queries, each meeting keys and values in two halves. What goes from one
// operation to the next is counted where a step has more rows than the decode form: a device keeps less than that near.
#pragma once

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
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;  // keys and values, read and written
  uint64_t state_bytes = 0;  // of gated delta layers, read and written
  uint64_t activation_bytes = 0;
  uint64_t int8_operations = 0;    // on matrix units
  uint64_t half_operations = 0;    // on matrix units, summed in floats
  uint64_t vector_operations = 0;  // lanes of instructions, two each, as peaks of multiply-adds count them
};

StepCost step_cost(const DeviceWeights& weights, const Config& config, KvType kv, const StepShape& shape);

}  // namespace assay
