// Which backend serves: the best this CPU has, or the one asked for.
#pragma once

#include "ops.h"

namespace assay {

const char* detect_isa();

// The backend named `isa`, or the detected one for nullptr. Error (unsupported)
// when this build or this CPU does not have it.
const Ops& select_ops(const char* isa);

}  // namespace assay
