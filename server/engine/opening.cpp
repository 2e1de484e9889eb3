#include "opening.h"

#include "device_weights.h"
#include "isa.h"
#include "request.h"

namespace assay {

Opening::Opening(const assay_options& options)
    : ops(&select_ops(options.isa)),
      threads(bounded("threads", options.threads, kMostThreads)),
      slots(bounded("slots", options.slots, kMostSlots)),
      file(options),
      config(read_config(file)),
      context(choose_context(options.context, config.context)),
      kv(choose_kv(options.kv, config.head_dim)) {
  DeviceWeights(file, config);  // finds every tensor, as Weights will, and reads none
}

}  // namespace assay
