"""From an answer's tokens to its text: stop strings and characters split over tokens.

Works on bytes, because tokens are byte strings and UTF-8 synchronises itself: a stop string is found with
one search wherever it straddles tokens. Text is let go only when it can no longer be the beginning of a
stop string and its last character is complete, so nothing of a stop and no broken character leaks into a
stream.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """The text of one answer as it grows; `feed` a token's bytes, `finish` at the end.

    `released` counts the bytes that were let go: the answer's text is exactly that prefix of its bytes
    (less an incomplete last character), which is how log-probabilities are kept in step with it.
    """

    def __init__(self, stops: Sequence[bytes] = ()) -> None:
        """Start an empty answer that ends before the first of `stops` to be complete (UTF-8, none empty)."""
        self._stops = tuple(stops)
        self._held = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.released = 0
        self.stopped = False
        self.stop = b""  # the stop string that ended it
        self.rest = b""  # what came after it in the same token

    def feed(self, data: bytes) -> str:
        """Add a token's bytes and return the text that is now certain; sets `stopped` at a stop string."""
        if not self._stops:
            self.released += len(data)
            return self._decoder.decode(data)
        self._held += data
        # The stop that is complete first, however the bytes came; of two that end together the longer.
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            end, at = min(found)
            self.stopped, self.stop, self.rest = True, self._held[at:end], self._held[end:]
            return self._release(at)
        return self._release(len(self._held) - self._undecided())

    def finish(self) -> str:
        """Return what was held back for a stop that never came; an incomplete character is dropped."""
        return "" if self.stopped else self._release(len(self._held))

    def _release(self, count: int) -> str:
        data, self._held = self._held[:count], self._held[count:]
        self.released += count
        return self._decoder.decode(data)

    def _undecided(self) -> int:
        """The length of the longest end of the held bytes that begins a stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
