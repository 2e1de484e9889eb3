// How far a sequence can be taken back in a model that keeps a state of it.
//
// Keys and values are kept of every position, so a slot can forget any number of
// its last ones. The state of the gated delta rule (ops.h) cannot be undone: it
// is kept as of the start of the running chunk of kDeltaChunk positions, with
// what each position of the chunk adds to it, so that positions of the running
// chunk can be forgotten and no others. The convolution before it sees conv - 1
// earlier rows; rows lie in a ring, position p at p % kept_rows(conv), which holds
// enough of them to forget kRewind positions.
#pragma once

#include <algorithm>

namespace assay {

constexpr int kDeltaChunk = 64;
constexpr int kRewind = 16;

constexpr int kept_rows(int conv) { return kRewind + conv - 1; }

// What a slot's state covers.
struct Span {
  int length = 0;     // positions held
  int base = 0;       // where the running chunk begins; the state is as of there
  int first_row = 0;  // the ring holds the rows from here to the end

  // The fewest positions, above 0, that can be kept without computing anything again; 0 of an empty slot. To keep
  // none is always possible: it is to begin anew.
  int least(int conv) const {
    const int seen = first_row == 0 ? 0 : first_row + conv - 1;
    return std::max({base, length - kRewind, seen});
  }

  // Positions from `positions` on are forgotten.
  void keep(int positions) {
    if (positions == 0) *this = Span();
    length = positions;
  }

  // Positions [length, length + count) are written.
  void write(int count, int conv) {
    length += count;
    first_row = std::max(first_row, length - kept_rows(conv));
    base = std::max(base, (length - 1) / kDeltaChunk * kDeltaChunk);
  }
};

}  // namespace assay
