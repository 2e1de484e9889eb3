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
constexpr std::chrono::microseconds kSpinForJob{200};  // what a server does between two steps takes less
constexpr int kSpinsPerLook = 64;  // pauses between two looks at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until ready() or for as long; whether it became ready.
template <typename Ready>
bool spin(std::chrono::microseconds longest, const Ready& ready) {
  const auto limit = std::chrono::steady_clock::now() + longest;
  do {
    for (int spin = 0; spin < kSpinsPerLook; ++spin) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < limit);
  return false;
}

uint64_t first_of(uint32_t phase) { return static_cast<uint64_t>(phase) << 32; }

}  // namespace

Team::Team(int threads) : size_(threads), cursors_(new Cursor[static_cast<size_t>(threads)]) {
  try {
    for (int index = 1; index < threads; ++index) workers_.emplace_back([this, index] { serve(index); });
  } catch (const std::system_error&) {
    stop();
    throw Error(ASSAY_NO_MEMORY, "cannot start " + std::to_string(threads) + " threads");
  }
}

Team::~Team() { stop(); }

void Team::stop() {
  {
    const std::lock_guard<std::mutex> lock(job_mutex_);
    stop_ = true;
  }
  job_given_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void Team::serve(int index) {
  std::fesetenv(FE_DFL_ENV);  // as run() does for the caller
  uint64_t seen = 0;
  for (;;) {
    spin(kSpinForJob, [&] { return stop_.load() || job_number_.load() != seen; });
    std::unique_lock<std::mutex> lock(job_mutex_);
    job_given_.wait(lock, [&] { return stop_ || (job_ != nullptr && job_number_ != seen); });
    if (stop_) return;
    seen = job_number_;
    const std::function<void(Member&)>* job = job_;
    Member member(*this, index, job_phase_);
    ++inside_;
    lock.unlock();
    (*job)(member);
    lock.lock();
    if (--inside_ == 0) job_left_.notify_one();
  }
}

void Team::run(const std::function<void(Member&)>& work) {
  // A library loaded earlier may have left the thread flushing subnormals:
  // rounding must not depend on it.
  std::fenv_t callers;
  std::fegetenv(&callers);
  std::fesetenv(FE_DFL_ENV);
  Member member(*this, 0, current());
  if (size_ > 1) {
    const std::lock_guard<std::mutex> lock(job_mutex_);
    job_ = &work;
    job_phase_ = current();
    ++job_number_;
    job_given_.notify_all();
  }
  work(member);
  if (size_ > 1) {
    {
      const std::lock_guard<std::mutex> lock(job_mutex_);
      job_ = nullptr;
    }
    spin(kSpin, [&] { return inside_.load() == 0; });
    std::unique_lock<std::mutex> lock(job_mutex_);
    job_left_.wait(lock, [&] { return inside_ == 0; });
  }
  std::fesetenv(&callers);
}

int Team::claim(uint32_t phase, int owner, int count) {
  const int begin = static_cast<int>(static_cast<int64_t>(count) * owner / size_);
  const int end = static_cast<int>(static_cast<int64_t>(count) * (owner + 1) / size_);
  std::atomic<uint64_t>& cursor = cursors_[static_cast<size_t>(owner)].word;
  uint64_t word = cursor.load(std::memory_order_relaxed);
  do {
    if (word >> 32 != phase || static_cast<int>(word & 0xffffffffu) >= end - begin) return -1;
  } while (!cursor.compare_exchange_weak(word, word + 1, std::memory_order_relaxed));
  return begin + static_cast<int>(word & 0xffffffffu);
}

void Team::finish(uint32_t phase, int finished, int count) {
  if (finished != 0 && done_.fetch_add(finished, std::memory_order_acq_rel) + finished == count) {
    advance(phase + 1);
    return;
  }
  if (spin(kSpin, [&] { return current() != phase; })) return;
  std::unique_lock<std::mutex> lock(phase_mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  phase_passed_.wait(lock, [&] { return phase_.load(std::memory_order_seq_cst) != phase; });
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Team::advance(uint32_t phase) {
  done_.store(0, std::memory_order_relaxed);
  for (int owner = 0; owner < size_; ++owner) {
    cursors_[static_cast<size_t>(owner)].word.store(first_of(phase), std::memory_order_relaxed);
  }
  phase_.store(phase, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard<std::mutex> lock(phase_mutex_);
    phase_passed_.notify_all();
  }
}

}  // namespace assay
