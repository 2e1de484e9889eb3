// The ground every kernel stands on: CUDA, or its emulation on the processor.
//
// Kernels use what this header offers and no more, so that one source compiles
// for a device (nvcc) and for tests (a C++ compiler with -DASSAY_EMULATED).
// Shared memory is reached through Shared, whose accesses the emulation checks.
// Floating-point arithmetic is what is written: nothing is contracted (-fmad=false),
// a fused step is __fmaf_rn, division and square root round to nearest.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef ASSAY_EMULATED

#include "emulation/device.cuh"

#else

#include <cuda_fp16.h>
#include <cuda_runtime.h>

// `count` values of shared memory.
template <typename T>
class Shared {
 public:
  Shared() = default;  // of nothing, to be assigned
  __device__ Shared(unsigned char* bytes, int) : data_(reinterpret_cast<T*>(bytes)) {}
  __device__ explicit Shared(T* data) : data_(data) {}

  __device__ T get(int index) const { return data_[index]; }
  __device__ void put(int index, T value) const { data_[index] = value; }
  template <typename U>
  __device__ Shared<U> as() const {
    return Shared<U>(reinterpret_cast<U*>(data_));
  }
  __device__ Shared<T> part(int first, int) const { return Shared<T>(data_ + first); }
  __device__ T* at(int index) const { return data_ + index; }

 private:
  T* data_ = nullptr;
};

// Hands out 16-byte-aligned arrays of a region, in one order for every thread.
class SharedArena {
 public:
  __device__ explicit SharedArena(unsigned char* bytes) : next_(bytes) {}

  template <typename T>
  __device__ Shared<T> take(int count) {
    const Shared<T> taken(next_, count);
    next_ += (static_cast<size_t>(count) * sizeof(T) + 15) & ~size_t{15};
    return taken;
  }

 private:
  unsigned char* next_;
};

// A kernel's shared memory: `bytes` known when it is compiled, or those asked for at the launch.
#define ASSAY_STATIC_SHARED(name, bytes)                      \
  __shared__ __align__(16) unsigned char name##_bytes[bytes]; \
  SharedArena name(name##_bytes)
#define ASSAY_DYNAMIC_SHARED(name)                                 \
  extern __shared__ __align__(16) unsigned char assay_dynamic_[]; \
  SharedArena name(assay_dynamic_)

#endif

#if defined(__CUDACC__) || defined(ASSAY_EMULATED)  // files without kernels are compiled without nvcc's front end

namespace assay::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kWarp = 32;

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x / kWarp); }

__device__ __forceinline__ float half_value(uint16_t bits) {
#ifdef ASSAY_EMULATED
  return half_to_float(bits);
#else
  return __half2float(__ushort_as_half(bits));
#endif
}

// Keeps a value in a register: the compiler does not compute it anew where it is used.
__device__ __forceinline__ void keep([[maybe_unused]] int& value) {
#ifndef ASSAY_EMULATED
  asm volatile("" : "+r"(value));
#endif
}

__device__ __forceinline__ void keep([[maybe_unused]] float& value) {
#ifndef ASSAY_EMULATED
  asm volatile("" : "+f"(value));
#endif
}

// The nearest half, ties to even; what is beyond the largest finite one becomes it.
__device__ __forceinline__ uint16_t half_bits(float value) {
  value = value > 65504.0f ? 65504.0f : value;
  value = value < -65504.0f ? -65504.0f : value;
#ifdef ASSAY_EMULATED
  return float_to_half(value);
#else
  return __half_as_ushort(__float2half_rn(value));
#endif
}

__device__ __forceinline__ uint32_t two_halves(uint16_t low, uint16_t high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

#ifdef ASSAY_EMULATED
// A float has twice a half's digits and two more, so rounding its result again is as rounding once.
template <typename Step>
uint32_t by_halves(uint32_t a, uint32_t b, const Step& step) {
  const auto one = [&](uint32_t x, uint32_t y) {
    return float_to_half(step(half_value(static_cast<uint16_t>(x)), half_value(static_cast<uint16_t>(y))));
  };
  return two_halves(one(a, b), one(a >> 16, b >> 16));
}
#endif

// Sums and products of two pairs of halves, each rounded to the nearest, ties to even; never a fused step.
__device__ __forceinline__ uint32_t sum_of_halves(uint32_t a, uint32_t b) {
#ifdef ASSAY_EMULATED
  return by_halves(a, b, [](float x, float y) { return x + y; });
#else
  uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
#endif
}

__device__ __forceinline__ uint32_t product_of_halves(uint32_t a, uint32_t b) {
#ifdef ASSAY_EMULATED
  return by_halves(a, b, [](float x, float y) { return x * y; });
#else
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
#endif
}

// The sum over a warp, in every lane: pairs at distance 16, 8, 4, 2, 1.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) value += __shfl_xor_sync(kFullWarp, value, flip);
  return value;
}

__device__ __forceinline__ float warp_largest(float value) {
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, flip));
  return value;
}

// e^x, x clamped to [-87, 88]: the polynomial of ref/exp.cpp with fused steps.
__device__ __forceinline__ float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = rintf(x * 1.44269504f);
  float r = __fmaf_rn(n, -0.693359375f, x);
  r = __fmaf_rn(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = __fmaf_rn(p, r, 1.3981999507e-3f);
  p = __fmaf_rn(p, r, 8.3334519073e-3f);
  p = __fmaf_rn(p, r, 4.1665795894e-2f);
  p = __fmaf_rn(p, r, 1.6666665459e-1f);
  p = __fmaf_rn(p, r, 5.0000001201e-1f);
  p = __fmaf_rn(p, r * r, r + 1.0f);
  return p * __uint_as_float(static_cast<unsigned>(static_cast<int>(n) + 127) << 23);
}

}  // namespace assay::cuda

#endif
