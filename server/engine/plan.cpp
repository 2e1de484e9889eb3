#include "plan.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "error.h"
#include "request.h"

namespace assay {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGraphBytes = 128 * kMiB;
constexpr uint64_t kDriverBytes = 640 * kMiB;  // of 24 GiB a card shows 23.7, and a context takes 0.3

// The largest number from 0 to `most` for which `fits` holds, which holds for all below it.
template <typename Fits>
int largest(int most, const Fits& fits) {
  int good = 0;
  for (int bad = most + 1; bad - good > 1;) {
    const int middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

std::string gibibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / static_cast<double>(1024 * kMiB));
  return text;
}

}  // namespace

uint64_t MemoryPlan::allocated() const { return weights + std::max(loading, cache + state + workspace); }

MemoryPlan memory_plan(const DeviceWeights& weights, const Config& config, const Holding& holding) {
  MemoryPlan plan{};
  plan.weights = weights.bytes();
  plan.cache = CacheSizes(config, holding).bytes();
  plan.state = StateSizes(config, holding.slots).bytes();
  plan.workspace = WorkspaceSizes(config, holding.slots, holding.context).bytes();
  plan.loading = weights.piece_bytes();
  plan.graphs = kGraphBytes;
  plan.driver = kDriverBytes;
  return plan;
}

int largest_context(const DeviceWeights& weights, const Config& config, Holding holding, uint64_t most) {
  return largest(config.context, [&](int context) {
    holding.context = std::max(context, 1);
    return memory_plan(weights, config, holding).total() <= most;
  });
}

int largest_slots(const DeviceWeights& weights, const Config& config, Holding holding, uint64_t most) {
  return largest(kMostSlots - holding.kept, [&](int slots) {
    holding.slots = std::max(slots, 1) + holding.kept;
    return memory_plan(weights, config, holding).total() <= most;
  });
}

void require_fit(const MemoryPlan& plan, uint64_t available, uint64_t limit) {
  const bool fits = plan.engine() <= available, allowed = limit == 0 || plan.total() <= limit;
  if (fits && allowed) return;
  const std::string parts = "weights " + gibibytes(plan.weights) + ", keys and values " + gibibytes(plan.cache) +
                            (plan.state == 0 ? "" : ", recurrent state " + gibibytes(plan.state)) + ", workspace " +
                            gibibytes(plan.workspace) + ", graphs " + gibibytes(plan.graphs);
  if (!fits) {
    throw Error(ASSAY_NO_MEMORY, "it takes " + gibibytes(plan.engine()) + " of device memory (" + parts + "), and " +
                                     gibibytes(available) + " are free");
  }
  throw Error(ASSAY_NO_MEMORY, "it takes " + gibibytes(plan.total()) + " of device memory (" + parts + ", driver " +
                                   gibibytes(plan.driver) + "), more than the " + gibibytes(limit) + " allowed");
}

}  // namespace assay
