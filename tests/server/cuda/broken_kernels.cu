// Kernels with one defect each, which the emulation must find: `broken_kernels NAME` prints what it says.
//
// Each block of 64 threads turns 64 values around. Compiled for the processor only.
#include <cstdio>
#include <cstring>
#include <vector>

#include "check.cuh"
#include "matrix.cuh"

namespace {

using namespace assay::cuda;

constexpr int kThreads = 64;

enum class Defect {
  none,
  removed_barrier,
  removed_second_barrier,
  removed_warp_barrier,
  divergent_barrier,
  divergent_shuffle,
  returned_lane,
  partial_mask,
  beyond_shared,
  beyond_arena,
  unwritten_shared,
  beyond_device_memory,
  misaligned_read,
  copy_not_awaited,
};

template <Defect kDefect>
__global__ void turn(const int* in, int* out) {
  ASSAY_DYNAMIC_SHARED(arena);
  const Shared<int> values = arena.template take<int>(kThreads);
  const Shared<uint4> words = arena.template take<uint4>(kDefect == Defect::beyond_arena ? 64 : 16);
  const int thread = static_cast<int>(threadIdx.x);
  const int given = kDefect == Defect::beyond_device_memory ? in[thread + kThreads] : in[thread];
  if (kDefect == Defect::misaligned_read) out[thread] = static_cast<int>(__ldg(reinterpret_cast<const uint2*>(in + 1)).x);
  if (kDefect != Defect::unwritten_shared || thread != 9) values.put(thread, given);
  if (kDefect != Defect::removed_barrier) __syncthreads();
  const int turned = values.get(kDefect == Defect::beyond_shared ? thread + 1 : kThreads - 1 - thread);
  if (kDefect != Defect::removed_second_barrier) __syncthreads();
  values.put(thread, turned);
  if (kDefect != Defect::removed_warp_barrier) __syncwarp();
  const int same = values.get(thread ^ 1);
  if (kDefect == Defect::divergent_barrier && thread < 32) __syncthreads();
  if (kDefect == Defect::returned_lane && thread == 3) return;
  int back = same;
  if (kDefect == Defect::divergent_shuffle && thread % 2 == 0) {
    back = __shfl_xor_sync(kFullWarp, same, 1);
  } else {
    back = __shfl_xor_sync(kDefect == Defect::partial_mask ? 1u : kFullWarp, same, 1);
  }
  if (thread < 16) copy_async(words, thread, in);
  copy_commit();
  if (kDefect != Defect::copy_not_awaited) copy_wait<0>();
  if (thread < 16) back += static_cast<int>(words.get(thread).x);
  out[thread] = back;
}

template <Defect kDefect>
int run() {
  const Stream stream;
  const DeviceArray<int> in(kThreads), out(kThreads);
  std::vector<int> values(kThreads), found(kThreads);
  for (int i = 0; i < kThreads; ++i) values[static_cast<size_t>(i)] = i;
  stream.upload(in.data(), values.data(), values.size());
  try {
    ASSAY_LAUNCH((turn<kDefect>), dim3(1), kThreads, kThreads * 4 + 16 * 16, stream.get(), in.data(), out.data());
  } catch (const assay::Error& error) {
    std::puts(error.what());
    return 1;
  }
  stream.download(found.data(), out.data(), found.size());
  for (int i = 0; i < kThreads; ++i) {
    if (found[static_cast<size_t>(i)] != kThreads - 1 - i) return 2;
  }
  return 0;
}

using Run = int (*)();

const struct {
  const char* name;
  Run run;
} kRuns[] = {
    {"none", run<Defect::none>},
    {"removed_barrier", run<Defect::removed_barrier>},
    {"removed_second_barrier", run<Defect::removed_second_barrier>},
    {"removed_warp_barrier", run<Defect::removed_warp_barrier>},
    {"divergent_barrier", run<Defect::divergent_barrier>},
    {"divergent_shuffle", run<Defect::divergent_shuffle>},
    {"returned_lane", run<Defect::returned_lane>},
    {"partial_mask", run<Defect::partial_mask>},
    {"beyond_shared", run<Defect::beyond_shared>},
    {"beyond_arena", run<Defect::beyond_arena>},
    {"unwritten_shared", run<Defect::unwritten_shared>},
    {"beyond_device_memory", run<Defect::beyond_device_memory>},
    {"misaligned_read", run<Defect::misaligned_read>},
    {"copy_not_awaited", run<Defect::copy_not_awaited>},
};

}  // namespace

int main(int count, char** words) {
  for (const auto& each : kRuns) {
    if (count == 2 && std::strcmp(words[1], each.name) == 0) return each.run();
  }
  return 3;
}
