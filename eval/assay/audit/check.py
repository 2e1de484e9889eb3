"""One audited fact, and what the audit could say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["PASS", "FAIL", "UNKNOWN"]


@dataclass(frozen=True)
class Check:
    """A fact about a run.

    Attributes:
        name: What was checked.
        verdict: PASS: it holds. FAIL: it does not. UNKNOWN: it cannot be told from what is here, or the run
            itself says that it was not enforced.
        evidence: What was found, a line each; a FAIL names every mismatch by path.
    """

    name: str
    verdict: Verdict
    evidence: tuple[str, ...]


def judge(name: str, faults: list[str], sound: str) -> Check:
    """PASS with one line of evidence when there are no faults, FAIL with the faults otherwise."""
    return Check(name, "FAIL", tuple(faults)) if faults else Check(name, "PASS", (sound,))
