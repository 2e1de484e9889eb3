// How many bytes weights take on a device: tiles of 32 rows by one block of 32 columns (cuda/packed.cuh
// says how they lie). Plain C++, so that a model can be planned where there is no device.
#pragma once

#include <cstddef>
#include <string>

#include "error.h"
#include "gguf.h"
#include "packed.h"

namespace assay {

constexpr int kTileRows = 32;                 // rows that lie together
constexpr int kPlaneBytes = kTileRows * 16;  // sixteen bytes of each row

constexpr size_t kDeviceAlignment = 256;  // of an array among others in one allocation

constexpr size_t aligned_bytes(size_t bytes) { return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment; }

// Bytes of a tile's block: its planes, then its rows' scales; 0 for a type that no device keeps.
constexpr size_t tile_bytes(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return 8 * kPlaneBytes;
    case TensorType::f16:
      return 4 * kPlaneBytes;
    case TensorType::q4_0:
      return kPlaneBytes + kTileRows * 2;
    case TensorType::q4_1:
      return kPlaneBytes + kTileRows * 4;
    case TensorType::q8_0:
      return 2 * kPlaneBytes + kTileRows * 2;
    default:
      return 0;
  }
}

// Bytes of a matrix, padding included; Error (unsupported) where no device keeps its type.
inline size_t packed_bytes(TensorType type, int rows, int columns) {
  const size_t bytes = tile_bytes(type);
  if (bytes == 0) unsupported(std::string("a device keeps no weights of the type ") + traits(type).name);
  return bytes * static_cast<size_t>((rows + kTileRows - 1) / kTileRows) * static_cast<size_t>(columns / kBlock);
}

}  // namespace assay
