"""How long a download keeps trying: five failures in a row without a byte gained, or as long as it is told.

A host that asks to be left alone for some time is left alone for that time, and never asked again sooner; one
that asks for more than ten minutes ends the command, which can be typed again later.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping

from assay.console import say
from assay.errors import AssayError

FAILURES = 5
FIRST_S = 0.5
LONGEST_S = 600.0
# Worth another try: the host is busy or broken, not of another opinion.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
# What the hub sends instead of Retry-After: `"api";r=0;t=55`, no request left for so many seconds.
EXHAUSTED = re.compile(r'"[^"]*"\s*;\s*r=0\s*;\s*t=(\d+)')


class Patience:
    """Waits between the attempts at one file, `what`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0

    def wait(self, error: AssayError, gained: bool, asked_s: float | None = None) -> None:
        """Wait before the next attempt, and say so.

        Args:
            error: What went wrong; raised when it went wrong too often.
            gained: Whether the attempt brought a byte.
            asked_s: How long the host asked to be left alone.
        """
        self._failures = 1 if gained else self._failures + 1
        pause = FIRST_S * 2 ** (self._failures - 1) if asked_s is None else asked_s
        if self._failures > FAILURES or pause > LONGEST_S:
            raise error
        say(f"assay: {self._what}: {error.what} ({error.why}); trying again in {pause:.1f} s")
        time.sleep(pause)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long an answer asks to be left alone, in seconds: by Retry-After in either form, or RateLimit.

    None when it asks nothing. The headers' names must be found in any case, as an HTTP client's are.
    """
    value = headers.get("Retry-After", "").strip()
    exhausted = EXHAUSTED.search(headers.get("RateLimit", ""))
    if value.isascii() and value.isdigit():
        return float(value)
    if value:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, OverflowError):
            return None
    return float(exhausted[1]) + 1.0 if exhausted else None
