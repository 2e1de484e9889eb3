#include "row_source.h"

#include <cstring>

#include "dequantise.h"
#include "mapping.h"
#include "q8_block.h"

namespace assay {
namespace {

constexpr size_t kRun = 32;           // columns whose nibbles lie together
constexpr size_t kRunBytes = 16;      // of their nibbles
constexpr size_t kW4Columns = 128;    // that a scale covers
constexpr size_t kW4Block = 66;       // bytes: the scale, four runs
constexpr size_t kNvfp4Columns = 16;  // that a scale covers
constexpr size_t kNvfp4Block = 18;    // bytes: two scales, a run
constexpr size_t kAlignment = 4;

// 16 bytes of two neighbouring columns each, the first low, into Q4_0's order.
void reorder(const uint8_t* pairs, uint8_t* out) {
  for (size_t byte = 0; byte < 8; ++byte) {
    out[2 * byte] = static_cast<uint8_t>((pairs[byte] & 0x0f) | (pairs[8 + byte] << 4));
    out[2 * byte + 1] = static_cast<uint8_t>((pairs[byte] >> 4) | (pairs[8 + byte] & 0xf0));
  }
}

void read_packed(const Tensor& tensor, size_t first, size_t count, uint8_t* out) {
  const size_t blocks = static_cast<size_t>(tensor.columns) / kW4Columns;
  const uint8_t* values = tensor.data + first * blocks * (kW4Columns / 2);
  const uint8_t* scales = tensor.scales + first * blocks * 2;
  for (size_t block = 0; block < count * blocks; ++block) {
    std::memcpy(out, scales + 2 * block, 2);
    for (size_t run = 0; run < kW4Columns / kRun; ++run) {
      reorder(values + (block * (kW4Columns / kRun) + run) * kRunBytes, out + 2 + run * kRunBytes);
    }
    out += kW4Block;
  }
}

void read_nvfp4(const Tensor& tensor, size_t first, size_t count, uint8_t* out) {
  const size_t blocks = static_cast<size_t>(tensor.columns) / kRun;
  const uint8_t* values = tensor.data + first * blocks * kRunBytes;
  const uint8_t* scales = tensor.scales + first * blocks * (kRun / kNvfp4Columns);
  for (size_t block = 0; block < count * blocks; ++block) {
    std::memcpy(out, scales + 2 * block, 2);
    reorder(values + block * kRunBytes, out + 2);
    out += kNvfp4Block;
  }
}

// The eight nibbles of a word, the lowest first, each low in a byte of its own.
uint64_t spread(const uint8_t* word) {
  uint32_t nibbles;
  std::memcpy(&nibbles, word, sizeof nibbles);
  uint64_t value = nibbles;
  value = (value | (value << 16)) & 0x0000ffff0000ffffu;
  value = (value | (value << 8)) & 0x00ff00ff00ff00ffu;
  return (value | (value << 4)) & 0x0f0f0f0f0f0f0f0fu;
}

// A word holds eight columns of one row, and the words of all rows lie side by side.
void read_gptq(const Tensor& tensor, size_t first, size_t count, uint8_t* out) {
  const size_t rows = static_cast<size_t>(tensor.rows);
  const size_t blocks = static_cast<size_t>(tensor.columns) / kW4Columns;
  for (size_t block = 0; block < blocks; ++block) {
    const uint8_t* scales = tensor.scales + 2 * (block * rows + first);
    for (size_t row = 0; row < count; ++row) {
      std::memcpy(out + (row * blocks + block) * kW4Block, scales + 2 * row, 2);
    }
    for (size_t run = 0; run < kW4Columns / kRun; ++run) {
      const uint8_t* words = tensor.data + 4 * ((block * (kW4Columns / 8) + run * (kRun / 8)) * rows + first);
      for (size_t row = 0; row < count; ++row) {
        const uint8_t* word = words + 4 * row;
        const uint64_t low = spread(word) | (spread(word + 8 * rows) << 4);
        const uint64_t high = spread(word + 4 * rows) | (spread(word + 12 * rows) << 4);
        uint8_t* nibbles = out + (row * blocks + block) * kW4Block + 2 + run * kRunBytes;
        std::memcpy(nibbles, &low, 8);
        std::memcpy(nibbles + 8, &high, 8);
      }
    }
  }
}

size_t stored_row_bytes(const Tensor& tensor) {
  return static_cast<size_t>(tensor.columns) * traits(tensor.stored).block_bytes;
}

void read_floats(const Tensor& tensor, size_t first, size_t count, uint8_t* out) {
  const size_t blocks = count * static_cast<size_t>(tensor.columns) / kQ8Values;
  const size_t block_bytes = kQ8Values * traits(tensor.stored).block_bytes;
  const uint8_t* stored = tensor.data + first * stored_row_bytes(tensor);
  float values[kQ8Values];
  for (size_t block = 0; block < blocks; ++block) {
    dequantise(tensor.stored, 1.0f, stored + block * block_bytes, kQ8Values, values);
    quantise_q8(values, out + block * kQ8Bytes);
  }
}

}  // namespace

size_t stored_bytes(const Tensor& tensor) {
  switch (tensor.storage) {
    case Storage::rows:
      return tensor.byte_size;
    case Storage::packed:
    case Storage::gptq:
    case Storage::nvfp4:
      return static_cast<size_t>(tensor.columns * tensor.rows / 2);
    case Storage::floats:
      return stored_row_bytes(tensor) * static_cast<size_t>(tensor.rows);
  }
  return 0;
}

size_t scale_bytes(const Tensor& tensor) {
  const size_t values = static_cast<size_t>(tensor.columns * tensor.rows);
  switch (tensor.storage) {
    case Storage::rows:
    case Storage::floats:
      return 0;
    case Storage::packed:
    case Storage::gptq:
      return values / kW4Columns * 2;
    case Storage::nvfp4:
      return values / kNvfp4Columns;
  }
  return 0;
}

const uint8_t* read_rows(const Tensor& tensor, int first, int count, std::vector<uint8_t>& room) {
  const size_t bytes = row_bytes(tensor), from = static_cast<size_t>(first), rows = static_cast<size_t>(count);
  if (tensor.storage == Storage::rows) {
    const uint8_t* stored = tensor.data + from * bytes;
    if (reinterpret_cast<uintptr_t>(stored) % kAlignment == 0) return stored;
    room.assign(stored, stored + rows * bytes);
    return room.data();
  }
  room.resize(rows * bytes);
  switch (tensor.storage) {
    case Storage::rows:
      break;
    case Storage::packed:
      read_packed(tensor, from, rows, room.data());
      done_reading(tensor.data + from * tensor.columns / 2, rows * tensor.columns / 2);
      break;
    case Storage::gptq:
      read_gptq(tensor, from, rows, room.data());
      // Every page holds something of every row.
      if (from + rows == tensor.rows) done_reading(tensor.data, stored_bytes(tensor));
      break;
    case Storage::nvfp4:
      read_nvfp4(tensor, from, rows, room.data());
      done_reading(tensor.data + from * tensor.columns / 2, rows * tensor.columns / 2);
      break;
    case Storage::floats:
      read_floats(tensor, from, rows, room.data());
      done_reading(tensor.data + from * stored_row_bytes(tensor), rows * stored_row_bytes(tensor));
      break;
  }
  return room.data();
}

}  // namespace assay
