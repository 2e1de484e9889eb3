// embed: one row of the packed table, widened to float.
#include "panel.h"
#include "ref.h"

namespace assay::ref {

void embed(const Packed& table, int token, float* out) {
  const uint8_t* panel = table.panel(token / kPanelRows);
  const size_t bytes = block_bytes(table.type);
  for (int block = 0; block < table.blocks(); ++block) {
    const PanelBlock view(table.type, panel + static_cast<size_t>(block) * bytes);
    for (int column = 0; column < kBlock; ++column) {
      out[block * kBlock + column] = view.value(token % kPanelRows, column);
    }
  }
}

}  // namespace assay::ref
