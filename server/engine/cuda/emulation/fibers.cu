#include "fibers.cuh"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "memory.cuh"
#include "shared.cuh"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {
namespace {

constexpr size_t kStackBytes = size_t{96} << 10;

struct Fiber {
  std::vector<char> stack;
  ucontext_t start;
  jmp_buf place;
  bool entered = false;
  Wait wait = Wait::ready;
  Meeting meeting = Meeting::sync;
  int line = 0;
  size_t size = 0;
  int phase = 0;
  uint3 index{};
};

struct Warp {
  alignas(16) uint8_t payload[2][kLanes][kMostPayload];
  uint64_t epoch = 0;
};

// One block at a time, one thread at a time: one state for the whole process.
struct Scheduler {
  std::mutex mutex;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  const std::function<void()>* body = nullptr;
  const char* name = "";
  size_t current = 0;
  size_t threads = 0;
  uint64_t clock = 0;
  uint64_t block_epoch = 0;
  jmp_buf home;
  sigjmp_buf outside;  // where an access outside of device memory ends
  volatile sig_atomic_t in_kernel = 0;
  std::string failure;
};

Scheduler scheduler;

std::string text(const uint3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

void fail(const std::string& what) {
  scheduler.failure = std::string(scheduler.name) + ", block " + text(blockIdx) + ", thread " + text(threadIdx) +
                      ": " + what;
}

void enter() {
  for (;;) {
    (*scheduler.body)();
    Fiber& fiber = scheduler.fibers[scheduler.current];
    fiber.wait = Wait::done;
    if (_setjmp(fiber.place) == 0) _longjmp(scheduler.home, 1);
  }
}

// Back to the scheduler until what the fiber waits for has come.
void pause() {
  if (_setjmp(scheduler.fibers[scheduler.current].place) == 0) _longjmp(scheduler.home, 1);
}

void resume(size_t index) {
  Fiber& fiber = scheduler.fibers[index];
  scheduler.current = index;
  threadIdx = fiber.index;
  if (_setjmp(scheduler.home) != 0) return;
  if (fiber.entered) _longjmp(fiber.place, 1);
  fiber.entered = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.data();
  fiber.start.uc_stack.ss_size = fiber.stack.size();
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, enter, 0);
  setcontext(&fiber.start);
}

bool failed() { return !scheduler.failure.empty(); }

// Every lane has stopped; true when they all met in one operation and may go on.
bool met(size_t first, size_t end) {
  const Fiber* waiting = nullptr;
  for (size_t i = first; i < end; ++i) {
    if (scheduler.fibers[i].wait == Wait::warp) waiting = &scheduler.fibers[i];
  }
  if (waiting == nullptr) return false;
  threadIdx = waiting->index;
  if (end - first != kLanes) {
    fail("a warp operation at line " + std::to_string(waiting->line) + " in a warp of fewer than 32 threads");
    return false;
  }
  for (size_t i = first; i < end; ++i) {
    const Fiber& fiber = scheduler.fibers[i];
    if (fiber.wait != Wait::warp || fiber.line != waiting->line || fiber.meeting != waiting->meeting ||
        fiber.size != waiting->size) {
      fail("a divergent warp operation: one lane is at line " + std::to_string(waiting->line) + ", lane " +
           std::to_string(i - first) +
           (fiber.wait == Wait::done ? " has returned" : " waits at line " + std::to_string(fiber.line)));
      return false;
    }
  }
  if (waiting->meeting == Meeting::sync) scheduler.warps[first / kLanes].epoch = ++scheduler.clock;
  for (size_t i = first; i < end; ++i) scheduler.fibers[i].wait = Wait::ready;
  return true;
}

void run_warp(size_t first, size_t end) {
  do {
    for (size_t i = first; i < end && !failed(); ++i) {
      if (scheduler.fibers[i].wait == Wait::ready) resume(i);
    }
  } while (!failed() && met(first, end));
}

// True when the block's threads met at a barrier and may go on.
bool met_block() {
  const Fiber& one = scheduler.fibers[0];
  for (size_t i = 0; i < scheduler.threads; ++i) {
    const Fiber& fiber = scheduler.fibers[i];
    if (fiber.wait == one.wait && (fiber.wait == Wait::done || fiber.line == one.line)) continue;
    threadIdx = fiber.index;
    fail("a divergent barrier: thread 0 " +
         (one.wait == Wait::done ? std::string("has returned") : "is at line " + std::to_string(one.line)) +
         ", this one " +
         (fiber.wait == Wait::done ? std::string("has returned") : "is at line " + std::to_string(fiber.line)));
    return false;
  }
  if (one.wait == Wait::done) return false;
  scheduler.block_epoch = ++scheduler.clock;
  for (size_t i = 0; i < scheduler.threads; ++i) scheduler.fibers[i].wait = Wait::ready;
  return true;
}

void run_block() {
  scheduler.block_epoch = ++scheduler.clock;
  shared_begin();
  for (size_t i = 0; i < scheduler.threads; ++i) {
    Fiber& fiber = scheduler.fibers[i];
    fiber.wait = Wait::ready;
    fiber.phase = 0;
    const unsigned at = static_cast<unsigned>(i);
    fiber.index = {at % blockDim.x, at / blockDim.x % blockDim.y, at / (blockDim.x * blockDim.y)};
  }
  do {
    for (size_t first = 0; first < scheduler.threads && !failed(); first += kLanes) {
      run_warp(first, first + kLanes < scheduler.threads ? first + kLanes : scheduler.threads);
    }
  } while (!failed() && met_block());
}

void on_signal(int signal, siginfo_t* info, void*) {
  if (scheduler.in_kernel) {
    fail("an access outside of device memory, " + describe_address(info->si_addr));
    siglongjmp(scheduler.outside, 1);
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void run_blocks(dim3 grid) {
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x && !failed(); ++x) {
        blockIdx = {x, y, z};
        run_block();
      }
    }
  }
}

}  // namespace

std::string run(dim3 grid, dim3 block, size_t dynamic_bytes, const char* name, const std::function<void()>& body) {
  const std::lock_guard<std::mutex> lock(scheduler.mutex);
  scheduler.threads = static_cast<size_t>(block.x) * block.y * block.z;
  if (scheduler.threads == 0 || scheduler.threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.y > 65535 || grid.z > 65535) {
    return std::string(name) + ": a grid or block no device takes";
  }
  while (scheduler.fibers.size() < scheduler.threads) {
    scheduler.fibers.emplace_back();
    scheduler.fibers.back().stack.resize(kStackBytes);
  }
  scheduler.warps.resize((scheduler.threads + kLanes - 1) / kLanes);
  scheduler.body = &body;
  scheduler.name = name;
  scheduler.failure.clear();
  blockDim = block;
  gridDim = grid;
  shared_plan(dynamic_bytes);

  struct sigaction action {}, before[2];
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &before[0]);
  ::sigaction(SIGBUS, &action, &before[1]);
  if (sigsetjmp(scheduler.outside, 1) == 0) {
    scheduler.in_kernel = 1;
    run_blocks(grid);
  }
  scheduler.in_kernel = 0;
  ::sigaction(SIGSEGV, &before[0], nullptr);
  ::sigaction(SIGBUS, &before[1], nullptr);
  if (failed()) {
    // The fibers stand somewhere inside the kernel; the next one starts afresh.
    for (Fiber& fiber : scheduler.fibers) fiber.entered = false;
  }
  return scheduler.failure;
}

void fault(const std::string& what) {
  fail(what);
  _longjmp(scheduler.home, 1);
}

void wait_block(int line) {
  Fiber& fiber = scheduler.fibers[scheduler.current];
  fiber.wait = Wait::block;
  fiber.line = line;
  pause();
}

const uint8_t* meet(Meeting meeting, const void* payload, size_t size, int line) {
  Fiber& fiber = scheduler.fibers[scheduler.current];
  Warp& warp = scheduler.warps[scheduler.current / kLanes];
  fiber.phase ^= 1;  // a lane may be one meeting ahead, never two
  const int phase = fiber.phase;
  std::memcpy(warp.payload[phase][scheduler.current % kLanes], payload == nullptr ? "" : payload, size);
  fiber.wait = Wait::warp;
  fiber.meeting = meeting;
  fiber.size = size;
  fiber.line = line;
  pause();
  return warp.payload[phase][0];
}

int lane() { return static_cast<int>(scheduler.current % kLanes); }
int thread() { return static_cast<int>(scheduler.current); }
uint64_t epoch() { return scheduler.block_epoch; }
uint64_t warp_epoch() { return scheduler.warps[scheduler.current / kLanes].epoch; }

}  // namespace emulation
