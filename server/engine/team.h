// The threads that compute one step together.
//
// Every member runs the same function; phases are separated by barriers. A
// waiter spins for some microseconds (phases are that short) and then sleeps on
// a condition variable: the cores are shared with the sandboxes of an
// evaluation, and an idle engine must use none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace assay {

class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Runs work(member) on every member, the caller being member 0; returns when
  // all have. `work` must not throw.
  void run(const std::function<void(int)>& work);

  // Waits until every member is here; starts the count of claim() anew.
  void barrier();

  // The next unit of work of this phase, from 0 on.
  int claim() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void serve(int member);
  void release();

  const int size_;
  std::vector<std::thread> workers_;

  std::atomic<int> next_{0};
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> phase_{0};
  std::atomic<int> sleepers_{0};
  std::mutex phase_mutex_;
  std::condition_variable phase_passed_;

  std::mutex job_mutex_;
  std::condition_variable job_given_;
  unsigned job_number_ = 0;
  const std::function<void(int)>* job_ = nullptr;
  bool stop_ = false;
};

}  // namespace assay
