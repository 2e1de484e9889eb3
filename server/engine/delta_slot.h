// Where a device keeps what a slot must remember of a gated delta layer (rewind.h), in floats:
//   S     [value_head][key_dim][value_dim]               as of the running chunk's start
//   u     [value_head][kDeltaChunk][value_dim]           of the running chunk's positions, as G and k
//   G     [value_head][kDeltaChunk]
//   k     [key_head][kDeltaChunk][key_dim]
//   rows  [position % kept_rows][channels]               what the convolution was given
// Plain C++, so that a model can be planned where there is no device.
#pragma once

#include <cstdint>

#include "config.h"
#include "rewind.h"

namespace assay {

struct DeltaSlot {
  explicit DeltaSlot(const DeltaShape& shape)
      : writes(int64_t{shape.value_width()} * shape.key_dim),
        decays(writes + int64_t{shape.value_width()} * kDeltaChunk),
        keys(decays + int64_t{shape.value_heads} * kDeltaChunk),
        rows(keys + int64_t{shape.key_width()} * kDeltaChunk),
        floats(rows + int64_t{shape.width()} * kept_rows(shape.conv)) {}

  int64_t writes, decays, keys, rows;  // where each part begins; S is at 0
  int64_t floats;                      // of a layer
};

// Of a row that a delta layer makes of its input: queries, keys, values, then the gate z, then a, then b.
inline int delta_stride(const DeltaShape& shape) {
  return shape.width() + shape.value_width() + 2 * shape.value_heads;
}

}  // namespace assay
