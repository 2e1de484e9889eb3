// assay_plan: the same in every library, since it computes on no device.
#include "assay_engine.h"
#include "border.h"
#include "plan.h"
#include "request.h"
#include "step_cost.h"

namespace assay {
namespace {

void describe(const DeviceWeights& weights, const Config& config, const Holding& holding, uint64_t most,
              assay_memory& out) {
  const MemoryPlan plan = memory_plan(weights, config, holding);
  const CacheSizes cache(config, holding);
  out.slots = holding.slots;
  out.context = holding.context;
  out.model_context = config.context;
  out.largest_context = largest_context(weights, config, holding, most);
  out.largest_slots = largest_slots(weights, config, holding, most);
  out.prefill_rows = kMostRows;
  out.weight_bytes = plan.weights;
  out.kv_bytes = plan.cache;
  out.state_bytes = plan.state;
  out.workspace_bytes = plan.workspace;
  out.loading_bytes = plan.loading;
  out.graph_bytes = plan.graphs;
  out.driver_bytes = plan.driver;
  out.total_bytes = plan.total();
  out.kv_bytes_per_position = static_cast<uint64_t>(cache.block_bytes) / kPositionBlock;
  out.state_bytes_per_slot = StateSizes(config, 1).bytes();
}

void count(const DeviceWeights& weights, const Config& config, const Holding& holding, assay_step_cost& step) {
  bounded("sequences", step.sequences, kMostRows);
  bounded("rows", step.rows, kMostRows / step.sequences);
  if (step.position < 0 || step.position > config.context || step.logits < 0 || step.logits > kMostRows) {
    bad_argument("a step at position " + std::to_string(step.position) + " with " + std::to_string(step.logits) +
                 " rows of logits");
  }
  const StepCost cost =
      step_cost(weights, config, holding.kv, {step.sequences, step.rows, step.position, step.logits});
  step.products = cost.products;
  step.attention = cost.attention;
  step.delta = cost.delta;
  step.between = cost.between;
}

}  // namespace
}  // namespace assay

int32_t assay_plan(const assay_options* options, assay_memory* memory, assay_step_cost* steps, size_t step_count,
                   char* error, size_t error_size) {
  return assay::guarded(error, error_size, [&] {
    if (options == nullptr || memory == nullptr || (steps == nullptr && step_count != 0)) {
      assay::bad_argument("no options, or no place for the plan");
    }
    const assay::ModelFile file(*options);
    const assay::Config config = assay::read_config(file);
    assay::require_columns(config);
    const assay::Holding holding = assay::choose_holding(*options, config);
    const assay::DeviceWeights weights(file, config);
    assay::describe(weights, config, holding, options->memory_bytes, *memory);
    for (size_t index = 0; index < step_count; ++index) assay::count(weights, config, holding, steps[index]);
  });
}
