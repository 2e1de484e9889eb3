// Threads of a block as cooperative fibers on one processor.
//
// Blocks run one after the other, and a thread runs until it waits: for its warp
// (shuffle, matrix product, __syncwarp), for its block, or for nothing more. What
// a device would leave undefined is an error here, with kernel, block, thread and
// source line: a warp operation that not all 32 lanes reach at one line, a barrier
// that some threads miss, an access outside of shared or device memory, shared
// memory read before it was written or without a barrier after another thread's
// write (shared.cuh). It is for tests: nothing here is fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct uint3 {
  unsigned x, y, z;
};

// The built-in variables of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulation {

constexpr int kLanes = 32;
constexpr size_t kMostPayload = 64;  // bytes a lane can hand to its warp

enum class Wait { ready, warp, block, done };
enum class Meeting { sync, shuffle, matrix };  // kinds of warp operation; they do not meet one another

// Runs every block of a kernel; the message of what went wrong, or an empty one.
std::string run(dim3 grid, dim3 block, size_t dynamic_bytes, const char* name, const std::function<void()>& body);

// Ends the running kernel with an error that names the thread.
[[noreturn]] void fault(const std::string& what);

void wait_block(int line);

// Gives `size` bytes to the warp and returns the 32 lanes' payloads, kMostPayload bytes apart.
const uint8_t* meet(Meeting meeting, const void* payload, size_t size, int line);

int lane();
int thread();      // in the block
uint64_t epoch();  // grows with every barrier of the block
uint64_t warp_epoch();  // grows with every __syncwarp of the running warp

}  // namespace emulation

inline void __syncthreads(int line = __builtin_LINE()) { emulation::wait_block(line); }

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  if (mask != 0xffffffffu) emulation::fault("a warp barrier with a partial mask");
  emulation::meet(emulation::Meeting::sync, nullptr, 0, line);
}
