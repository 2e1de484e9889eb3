// assay_op_rope_row (assay_hybrid_ops.h), for every device.
#include "assay_hybrid_ops.h"
#include "rope_table.h"

int32_t assay_op_rope_row(int32_t rope_dim, double base, const int32_t* sections, const int32_t* positions,
                          float* cosine, float* sine) {
  if (rope_dim < 2 || rope_dim % 2 != 0) return ASSAY_BAD_ARGUMENT;
  assay::RopeRows(rope_dim, base, sections).write({positions[0], positions[1], positions[2]}, cosine, sine);
  return ASSAY_OK;
}
