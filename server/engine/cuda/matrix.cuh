// Warp-wide matrix products and asynchronous copies: one instruction each, or its emulation.
//
// Fragments as PTX defines them; with g = lane / 4 and t = lane % 4, d = a * b + c:
//   m16n8k32 of int8   a[0], a[1]  rows g, g + 8, columns 4t to 4t + 3; a[2], a[3] the same plus column 16
//                      b[0], b[1]  rows 4t to 4t + 3 of column g; the same plus row 16
//   m16n8k16 of int8   a[0], a[1], b as the first halves of those
//   m16n8k16 of half   a[0], a[1]  rows g, g + 8, columns 2t, 2t + 1; a[2], a[3] the same plus column 8
//                      b[0], b[1]  rows 2t, 2t + 1 of column g; the same plus row 8
//   both               c[0], c[1]  row g, columns 2t, 2t + 1; c[2], c[3] the same of row g + 8; d as c
// The int8 products are exact. How a device rounds inside the half product is its own
// matter, but a row's result depends on that row and on b alone, so it is the same
// bits wherever the row stands and whatever stands beside it.
#pragma once

#include "device.cuh"

namespace assay::cuda {

#ifdef ASSAY_EMULATED

namespace {

struct Operands {
  uint32_t a[4];
  uint32_t b[2];
};

inline Operands operands_of(const uint8_t* lanes, int lane) {
  Operands operands;
  std::memcpy(&operands, lanes + static_cast<size_t>(lane) * emulation::kMostPayload, sizeof operands);
  return operands;
}

// c[row][column] += sum over the lanes' words of product(a word, b word).
template <typename T, typename Product>
void emulated_product(T (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Product& product, int line) {
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const uint8_t* lanes = emulation::meet(emulation::Meeting::matrix, &mine, sizeof mine, line);
  const int g = emulation::lane() / 4, t = emulation::lane() % 4;
  Operands rows[4];
  for (int part = 0; part < 4; ++part) rows[part] = operands_of(lanes, g * 4 + part);
  for (int column = 0; column < 2; ++column) {
    T low = c[column], high = c[2 + column];
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 4; ++part) {
        const uint32_t right = operands_of(lanes, (2 * t + column) * 4 + part).b[half];
        low = product(rows[part].a[2 * half], right, low);
        high = product(rows[part].a[2 * half + 1], right, high);
      }
    }
    c[column] = low;
    c[2 + column] = high;
  }
}

}  // namespace

inline void product_int8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const int (&c)[4],
                         int line = __builtin_LINE()) {
  std::memcpy(d, c, sizeof d);
  emulated_product(
      d, a, b,
      [](uint32_t left, uint32_t right, int total) {
        return __dp4a(static_cast<int>(left), static_cast<int>(right), total);
      },
      line);
}

inline void product_int8(int (&d)[4], const uint32_t (&a)[2], uint32_t b, const int (&c)[4],
                         int line = __builtin_LINE()) {
  product_int8(d, {a[0], a[1], 0, 0}, {b, 0}, c, line);
}

inline void product_half(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line = __builtin_LINE()) {
  emulated_product(
      c, a, b,
      [](uint32_t left, uint32_t right, float total) {
        total += half_to_float(static_cast<uint16_t>(left)) * half_to_float(static_cast<uint16_t>(right));
        return total +
               half_to_float(static_cast<uint16_t>(left >> 16)) * half_to_float(static_cast<uint16_t>(right >> 16));
      },
      line);
}

inline void copy_async(Shared<uint4> to, int index, const void* from) { emulation::copy_begin(to.at(index), from); }
inline void copy_commit() { emulation::copy_commit(); }

template <int kGroupsLeft>
void copy_wait() {
  emulation::copy_wait(kGroupsLeft);
}

#else

__device__ __forceinline__ void product_int8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                             const int (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

__device__ __forceinline__ void product_int8(int (&d)[4], const uint32_t (&a)[2], uint32_t b, const int (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

__device__ __forceinline__ void product_half(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 bytes of device memory to a place in shared memory, past the registers and the first cache.
__device__ __forceinline__ void copy_async(Shared<uint4> to, int index, const void* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to.at(index)));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// Closes a group of copies.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last kGroupsLeft groups of this thread have arrived.
template <int kGroupsLeft>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

#endif

// Products accumulated on top of this number are floats in disguise: of an int below 2^22 in size, larger by kDisguise.
constexpr int kFloatDisguise = 0x4b400000;
constexpr float kDisguise = 12582912.0f;

// The float of an int that was accumulated on top of kFloatDisguise; exact.
__device__ __forceinline__ float exact_float(int disguised) { return __int_as_float(disguised) - kDisguise; }

}  // namespace assay::cuda
