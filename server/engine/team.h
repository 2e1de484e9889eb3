// The threads that compute one step together.
//
// A job is a sequence of phases that every member walks through; a phase is a
// number of independent units. A phase is over when its units are done, not
// when every member has arrived: the cores are shared with the sandboxes of an
// evaluation, and a member that the system has put aside must not hold up the
// others, who do its share. A member that comes late skips what is over.
//
// Each member begins with its own contiguous share of a phase's units, so that
// it reads one stream of memory, and then helps where units are left. Who takes
// a unit changes no result. A waiter spins for some microseconds (phases, and
// the gaps between the steps of a busy engine, are that short), then sleeps: an
// idle engine uses no CPU.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace assay {

class Team {
 public:
  // One member's place in a job. Not shared between threads.
  class Member {
   public:
    Member(Team& team, int index, uint32_t phase) : team_(team), index_(index), phase_(phase) {}

    int index() const { return index_; }

    // Runs body(unit) for units of the next phase, 0 to count - 1, until all are done by
    // somebody. Every member must call it in the same order with the same count.
    template <typename Body>
    void phase(int count, const Body& body) {
      phase(count, [] {}, body);
    }

    // The same, with prepare() before the first unit that this member takes, if it takes one.
    template <typename Prepare, typename Body>
    void phase(int count, const Prepare& prepare, const Body& body) {
      if (count == 0) return;
      if (team_.current() == phase_) {
        int finished = 0;
        for (int offset = 0; offset < team_.size(); ++offset) {
          const int owner = (index_ + offset) % team_.size();
          for (int unit; (unit = team_.claim(phase_, owner, count)) >= 0; ++finished) {
            if (finished == 0) prepare();
            body(unit);
          }
        }
        team_.finish(phase_, finished, count);
      }
      ++phase_;
    }

   private:
    Team& team_;
    const int index_;
    uint32_t phase_;
  };

  explicit Team(int threads);  // Error: no memory for the threads
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Runs work(member) on the caller and on whichever other members come in time; returns
  // when the caller's has returned and nobody is inside. `work` must not throw.
  void run(const std::function<void(Member&)>& work);

 private:
  // The next unit of a member's share of a phase: the phase above, units taken below.
  struct alignas(64) Cursor {
    std::atomic<uint64_t> word{0};
  };

  uint32_t current() const { return phase_.load(std::memory_order_acquire); }
  int claim(uint32_t phase, int owner, int count);       // -1: the share is taken, or the phase over
  void finish(uint32_t phase, int finished, int count);  // reports units done, and waits for the others'
  void advance(uint32_t phase);
  void serve(int index);
  void stop();

  const int size_;
  std::unique_ptr<Cursor[]> cursors_;
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<int> sleepers_{0};
  std::mutex phase_mutex_;
  std::condition_variable phase_passed_;

  std::mutex job_mutex_;
  std::condition_variable job_given_;
  std::condition_variable job_left_;
  const std::function<void(Member&)>* job_ = nullptr;  // nullptr: closed
  std::atomic<uint64_t> job_number_{0};
  uint32_t job_phase_ = 0;      // its first
  std::atomic<int> inside_{0};  // members in the job beside the caller
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace assay
