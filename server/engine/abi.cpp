// assay_engine.h for the CPU.
#include "engine.h"
#include "isa.h"

#include "abi_calls.h"
