#include "team.h"

#include <cfenv>
#include <chrono>
#include <system_error>

#include "error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace assay {
namespace {

constexpr std::chrono::microseconds kSpin{20};
constexpr int kSpinsPerLook = 64;  // pauses between two looks at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Team::Team(int threads) : size_(threads) {
  try {
    for (int member = 1; member < threads; ++member) workers_.emplace_back([this, member] { serve(member); });
  } catch (const std::system_error&) {
    release();
    throw Error(ASSAY_NO_MEMORY, "cannot start " + std::to_string(threads) + " threads");
  }
}

Team::~Team() { release(); }

void Team::release() {
  {
    const std::lock_guard<std::mutex> lock(job_mutex_);
    stop_ = true;
  }
  job_given_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void Team::serve(int member) {
  unsigned done = 0;
  for (;;) {
    const std::function<void(int)>* job;
    {
      std::unique_lock<std::mutex> lock(job_mutex_);
      job_given_.wait(lock, [&] { return stop_ || job_number_ != done; });
      if (stop_) return;
      done = job_number_;
      job = job_;
    }
    (*job)(member);
    barrier();
  }
}

void Team::run(const std::function<void(int)>& work) {
  // A library loaded earlier may have left the thread flushing subnormals:
  // rounding must not depend on it.
  std::fenv_t callers;
  std::fegetenv(&callers);
  std::fesetenv(FE_DFL_ENV);
  {
    const std::lock_guard<std::mutex> lock(job_mutex_);
    job_ = &work;
    ++job_number_;
  }
  job_given_.notify_all();
  work(0);
  barrier();
  std::fesetenv(&callers);
}

void Team::barrier() {
  const unsigned phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      const std::lock_guard<std::mutex> lock(phase_mutex_);
      phase_passed_.notify_all();
    }
    return;
  }
  const auto limit = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int spin = 0; spin < kSpinsPerLook; ++spin) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < limit);
  std::unique_lock<std::mutex> lock(phase_mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  phase_passed_.wait(lock, [&] { return phase_.load(std::memory_order_seq_cst) != phase; });
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace assay
