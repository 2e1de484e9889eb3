// What device.cuh has from CUDA's headers, on the processor: words, vectors and warp operations.
#pragma once

#include <cmath>
#include <cstring>

#include "../../half.h"
#include "fibers.cuh"
#include "runtime.cuh"
#include "shared.cuh"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __uint_as_float(unsigned bits) { return assay::bits_to_float(bits); }
inline float __int_as_float(int bits) { return assay::bits_to_float(static_cast<uint32_t>(bits)); }
inline unsigned __float_as_uint(float value) { return assay::float_to_bits(value); }
using std::fabs;
using std::fmaxf;
using std::rintf;

inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }

template <typename T>
T __ldg(const T* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % sizeof(T) != 0) emulation::fault("a misaligned read of device memory");
  return *pointer;
}

inline int __dp4a(int a, int b, int total) {
  for (int i = 0; i < 32; i += 8) total += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return total;
}

// Four of the eight bytes of two words, by the low three bits of each nibble of `which`.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) {
    found |= static_cast<unsigned>(bytes >> (8 * (which >> (4 * i) & 7u)) & 0xffu) << (8 * i);
  }
  return found;
}

namespace emulation {

template <typename T>
T from_lane(unsigned mask, T value, int lane, int line) {
  if (mask != 0xffffffffu) fault("a shuffle with a partial mask");
  const uint8_t* lanes = meet(Meeting::shuffle, &value, sizeof(T), line);
  T found;
  std::memcpy(&found, lanes + static_cast<size_t>(lane) * kMostPayload, sizeof(T));
  return found;
}

}  // namespace emulation

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int line = __builtin_LINE()) {
  return emulation::from_lane(mask, value, emulation::lane() ^ flip, line);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, int distance, int line = __builtin_LINE()) {
  const int lane = emulation::lane() - distance;
  return emulation::from_lane(mask, value, lane < 0 ? emulation::lane() : lane, line);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int line = __builtin_LINE()) {
  return emulation::from_lane(mask, value, lane & 31, line);
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  if (mask != 0xffffffffu) emulation::fault("a vote with a partial mask");
  const uint8_t* lanes = emulation::meet(emulation::Meeting::shuffle, &predicate, sizeof predicate, line);
  int any = 0;
  for (int lane = 0; lane < emulation::kLanes; ++lane) {
    int each;
    std::memcpy(&each, lanes + static_cast<size_t>(lane) * emulation::kMostPayload, sizeof each);
    any |= each;
  }
  return any != 0;
}
