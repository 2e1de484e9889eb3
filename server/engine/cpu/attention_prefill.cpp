// attention, prefill form: queries of neighbouring tokens share each block, folded as they go.
#include "attention_block.h"

namespace assay::cpu {

void attention_prefill(const Queries& queries, const KvHead& head, float* const* outputs) {
  BlockState running;
  attend_block(queries, head, 0, running);
  int last = 0;
  for (int i = 0; i < queries.count; ++i) last = queries.visible[i] > last ? queries.visible[i] : last;
  BlockState next;
  for (int block = 1; block * kPositionBlock < last; ++block) {
    attend_block(queries, head, block, next);
    for (int i = 0; i < queries.count; ++i) {
      if (queries.visible[i] <= block * kPositionBlock) continue;  // this query sees nothing of the block
      fold(running.weighted[i], running.largest[i], running.sum[i], next.weighted[i], next.largest[i], next.sum[i],
           queries.head_dim);
    }
  }
  for (int i = 0; i < queries.count; ++i) normalise(running.weighted[i], running.sum[i], queries.head_dim, outputs[i]);
}

}  // namespace assay::cpu
