// The read bandwidth beside which decode is judged: a plain sum over memory.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <vector>

#include "assay_engine.h"
#include "mapping.h"
#include "team.h"

namespace {

constexpr size_t kUnitsPerMember = 64;

}  // namespace

double assay_read_seconds(uint64_t bytes, int32_t threads, int32_t repeats) {
  try {
    const size_t words = static_cast<size_t>(bytes) / sizeof(uint64_t);
    const size_t members = static_cast<size_t>(std::max(1, threads));
    const assay::Pages pages(words * sizeof(uint64_t));
    std::memset(pages.data(), 1, pages.size());
    assay::Team team(static_cast<int>(members));
    const size_t units = members * kUnitsPerMember;
    const size_t each = words / units;
    std::vector<uint64_t> sums(units);
    std::vector<double> seconds;
    for (int32_t repeat = 0; repeat < std::max(1, repeats); ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      team.run([&](assay::Team::Member& member) {
        member.phase(static_cast<int>(units), [&](int unit) {
          const uint64_t* word = pages.as<uint64_t>() + static_cast<size_t>(unit) * each;
          uint64_t sum[16] = {};
          for (size_t index = 0; index + 16 <= each; index += 16) {
            for (size_t lane = 0; lane < 16; ++lane) sum[lane] += word[index + lane];
          }
          for (const uint64_t lane : sum) sums[static_cast<size_t>(unit)] += lane;
        });
      });
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2), seconds.end());
    // The sums are part of the answer's computation, so that the reads cannot be left out.
    return sums[0] == 0 ? -1.0 : seconds[seconds.size() / 2];
  } catch (const std::exception&) {
    return -1.0;
  }
}
