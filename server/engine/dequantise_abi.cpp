// assay_op_dequantise (assay_ops.h), for every device.
#include "assay_ops.h"
#include "border.h"
#include "dequantise.h"

int32_t assay_op_dequantise(uint32_t type, float factor, const uint8_t* row, int32_t columns, float* out) {
  return assay::guarded(nullptr, 0, [&] {
    const assay::TensorType kind = static_cast<assay::TensorType>(type);
    const assay::TypeTraits stored = assay::traits(kind);
    if (columns < 0 || static_cast<uint32_t>(columns) % stored.block_values != 0) {
      assay::bad_argument("a row that is no whole number of blocks");
    }
    assay::dequantise(kind, factor, row, columns, out);
  });
}
