// A model that is no GGUF file, as the caller of assay_open describes it.
//
// The caller read the headers of files that may be hostile; whatever it made of
// them is checked here again, against the files as they are mapped, before a
// byte of a tensor is read.
#pragma once

#include <functional>

#include "assay_engine.h"
#include "gguf.h"
#include "mapping.h"

namespace assay {

// Error (bad argument) naming the key when the value is not whole.
Metadata described_metadata(const assay_metadata& given);

// The mapping of the file at a path.
using Place = std::function<const Mapping*(const char* path)>;

// Error naming the tensor when it is of no known kind or does not lie wholly in its file.
Tensor described_tensor(const assay_tensor_source& given, const Place& place);

}  // namespace assay
