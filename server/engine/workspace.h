// How much memory a device's passes and its cache take, as counts of what each array holds: the one place
// where cuda/forward.cu and cuda/cache.cu find their sizes, and from which a plan adds them up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "config.h"
#include "kv_layout.h"

namespace assay {

constexpr int kMostRows = 1024;       // of a pass
constexpr int kMostLogitRows = 64;    // whose logits are computed together
constexpr int kMostDecodeRows = 8;    // of the decode form of a linear operation
constexpr int kTileQueries = 16;      // of an attention tile
constexpr int kMostColumns = 131072;  // of a quantised row: its scales lie in shared memory

// What a device must know of a pass; of one fixed size, so that a graph can read it anywhere.
struct PassInputs {
  int32_t tokens[kMostRows];
  int32_t slots[kMostRows];
  int32_t visible[kMostRows];
  int32_t wanted[kMostRows];
};

// Consecutive (row, head) pairs of one key/value head, at most kTileQueries: pair f is row first_row + f / group,
// head f % group of the group.
struct QueryTile {
  int32_t first_row;
  int32_t first;
  int32_t count;
};

// How a model is held. `kept` of the slots hold `kept_positions` together at most; every other one may fill its
// context.
struct Holding {
  KvType kv;
  int slots;
  int context;
  int kept;
  int64_t kept_positions;
};

// Consecutive rows of a pass that belong to one slot, as gated delta layers need to know of them.
struct DeltaSegment {
  int32_t slot;
  int32_t first;     // row
  int32_t count;     // rows
  int32_t position;  // of the first row
  int32_t base;      // the chunk's start that the slot's state is of
};

struct DeltaInputs {
  int32_t count;
  int32_t segment_of[kMostRows];  // of each row
  DeltaSegment segments[kMostRows];
};

// What gated delta layers remember of every slot (delta_slot.h).
struct StateSizes {
  StateSizes(const Config& config, int slots);

  size_t bytes() const { return floats * sizeof(float); }
  size_t slot_bytes() const { return static_cast<size_t>(slot_floats) * sizeof(float); }

  int64_t layer_floats;  // of a slot
  int64_t slot_floats;   // of all layers
  size_t floats;         // of all slots
};

// Keys and values of every slot.
struct CacheSizes {
  CacheSizes(const Config& config, const Holding& holding);

  size_t pool_bytes() const { return blocks * static_cast<size_t>(block_bytes); }
  size_t bytes() const { return pool_bytes() + table_entries * sizeof(int32_t); }

  KvLayout layout;
  int64_t layer_bytes;   // of a position block
  int64_t block_bytes;   // of all layers
  int slot_blocks;       // of a slot at most
  size_t blocks;         // of the pool
  size_t table_entries;  // [slot][slot_blocks]
};

// What a pass computes in; the counts are of the items named.
struct WorkspaceSizes {
  WorkspaceSizes(const Config& config, int slots, int context);

  size_t bytes() const;

  int partial_rows;  // whose attention's partial results there is room for at once

  size_t tiles;       // QueryTile
  size_t angles;      // float, of cosines; as many of sines
  size_t residual;    // float
  size_t heads;       // float: what a layer makes of its input; then gate and up
  size_t attended;    // float: what comes of attention or of the delta rule
  size_t partials;    // float
  size_t x;           // float: activations of matrices of floats
  size_t quantised;   // sixteen bytes; as many of residuals
  size_t scales;      // two floats
  size_t logits;      // float
  size_t segments;    // DeltaInputs; these three: 0 without gated delta layers
  size_t mixed;       // float: queries, keys and values after the convolution
  size_t gates;       // two floats
};

}  // namespace assay
