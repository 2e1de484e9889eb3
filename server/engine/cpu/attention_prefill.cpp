// attention, prefill form: queries of neighbouring tokens share each block, folded as they go.
#include "attention_block.h"
#include "cpu.h"

namespace assay::cpu {

void attention_prefill(const Queries& queries, const uint8_t* const* blocks, float* const* outputs) {
  attend_whole<Lanes8>(queries, blocks, outputs);
}

}  // namespace assay::cpu
