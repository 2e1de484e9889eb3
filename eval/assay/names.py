"""What to say about a name that does not exist: which names do, and which one was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause such as `did you mean "demo"? known: demo, demo-full`.

    Args:
        name: What was asked for.
        known: What exists.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    listed = "known: " + ", ".join(names) if names else "none is known"
    return f'did you mean "{close[0]}"? {listed}' if close else listed
