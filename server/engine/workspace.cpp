#include "workspace.h"

#include <algorithm>

#include "delta_slot.h"

namespace assay {
namespace {

constexpr size_t kPartialBytes = size_t{128} << 20;  // of partial results, unless one row's are more
constexpr size_t kQuantisedBytes = 16;
constexpr size_t kScaleBytes = 2 * sizeof(float);

size_t times(int64_t a, int64_t b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

int blocks_of(int64_t positions) { return static_cast<int>((positions + kPositionBlock - 1) / kPositionBlock); }

}  // namespace

CacheSizes::CacheSizes(const Config& config, const Holding& holding)
    : layout{holding.kv, config.head_dim},
      layer_bytes(int64_t{layout.head_bytes()} * config.kv_heads),
      block_bytes(layer_bytes * config.count(LayerKind::attention)),
      slot_blocks(blocks_of(holding.context)),
      table_entries(times(holding.slots, slot_blocks)) {
  // Each kept slot may have begun a block that it does not fill.
  const size_t kept = times(holding.kept_positions / kPositionBlock + holding.kept, 1);
  blocks = times(holding.slots - holding.kept, slot_blocks) + std::min(kept, times(holding.kept, slot_blocks));
}

StateSizes::StateSizes(const Config& config, int slots)
    : layer_floats(config.count(LayerKind::delta) == 0 ? 0 : DeltaSlot(config.delta).floats),
      slot_floats(layer_floats * config.count(LayerKind::delta)),
      floats(times(slots, slot_floats)) {}

WorkspaceSizes::WorkspaceSizes(const Config& config, int slots, int context) {
  const DeltaShape& delta = config.delta;
  const int stride = std::max(config.q_rows() + 2 * config.kv_width(), delta_stride(delta));
  const int middle = std::max(config.q_width(), delta.value_width());
  const int widest = std::max(std::max(config.width, middle), config.ffn);
  const size_t row_partials = times(config.heads, blocks_of(context)) * partial_floats(config.head_dim);
  const size_t room = std::max<size_t>(kPartialBytes / sizeof(float) / row_partials, 1);
  partial_rows = static_cast<int>(
      std::min(room, static_cast<size_t>(std::max(std::min(slots, kMostRows), kMostDecodeRows))));
  tiles = times(kMostRows, config.heads / config.kv_heads) / kTileQueries + kMostRows;
  angles = times(context, config.rope_dim / 2);
  residual = times(kMostRows, config.width);
  heads = times(kMostRows, std::max(stride, 2 * config.ffn));
  attended = times(kMostRows, middle);
  partials = row_partials * static_cast<size_t>(partial_rows);
  x = times(kMostRows, widest);
  quantised = x / kQuantisedBytes;
  scales = x / kBlock;
  logits = times(kMostLogitRows, config.vocabulary);
  segments = config.count(LayerKind::delta) == 0 ? 0 : 1;
  mixed = times(kMostRows, delta.width());
  gates = times(kMostRows, delta.value_heads);
}

size_t WorkspaceSizes::bytes() const {
  const size_t floats = 2 * angles + residual + heads + attended + partials + x + logits + mixed + 2 * gates;
  return sizeof(PassInputs) + segments * sizeof(DeltaInputs) + tiles * sizeof(QueryTile) + floats * sizeof(float) +
         2 * quantised * kQuantisedBytes + scales * kScaleBytes + kMostLogitRows * sizeof(int32_t);
}

}  // namespace assay
