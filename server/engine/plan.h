// What a device needs to hold a model, counted before anything is loaded.
//
// It is the sum of what the CUDA engine allocates, by the functions that the engine takes its sizes from
// (device_weights.h, workspace.h), so it is exact; to it come two allowances for what the driver takes.
#pragma once

#include "config.h"
#include "device_weights.h"
#include "workspace.h"

namespace assay {

// Bytes of device memory.
struct MemoryPlan {
  uint64_t weights;
  uint64_t cache;      // keys and values of every slot
  uint64_t state;      // of gated delta layers, of every slot
  uint64_t workspace;  // what a pass computes in
  uint64_t loading;    // a piece of the file, gone before the cache is there
  uint64_t graphs;     // allowance: launches that the driver keeps, and the rounding of allocations
  uint64_t driver;     // allowance: what a card keeps back, and a process's context on it

  uint64_t allocated() const;  // the most that the engine holds at once
  uint64_t engine() const { return allocated() + graphs; }
  uint64_t total() const { return engine() + driver; }
};

MemoryPlan memory_plan(const DeviceWeights& weights, const Config& config, const Holding& holding);

// The largest context, or number of slots beside the kept ones, with which the rest of a holding takes no more than
// `most` bytes in total; 0: none does.
int largest_context(const DeviceWeights& weights, const Config& config, Holding holding, uint64_t most);
int largest_slots(const DeviceWeights& weights, const Config& config, Holding holding, uint64_t most);

// Error (no memory) with the numbers where the plan takes more than the `available` bytes of a device, or where it
// takes more than `limit` in total (0: there is none).
void require_fit(const MemoryPlan& plan, uint64_t available, uint64_t limit);

}  // namespace assay
