"""One audited fact, what the audit could say of it, and on whose word it rests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from assay.errors import AssayError

Verdict = Literal["PASS", "FAIL", "UNKNOWN"]
Basis = Literal["recomputed", "pinned", "measured", "claimed"]
Held = TypeVar("Held")


@dataclass(frozen=True)
class Check:
    """A fact about a run.

    Attributes:
        name: What was checked.
        verdict: PASS: it holds. FAIL: it does not. UNKNOWN: it cannot be told from what is here, or the run
            itself says that it was not enforced.
        evidence: What was found, a line each; a FAIL names every mismatch by path.
        basis: What a PASS rests on.
            recomputed: the audit computed it again, from the record or from what this checkout pins.
            pinned: it is equal to what a lock names by digest.
            measured: the run looked when it happened and recorded it, and nobody can look again.
            claimed: the server or the operator says so.
    """

    name: str
    verdict: Verdict
    evidence: tuple[str, ...]
    basis: Basis = "recomputed"


@dataclass(frozen=True)
class Rule(Generic[Held]):
    """A check before it is carried out.

    Attributes:
        name: The check's.
        basis: What its PASS rests on.
        look: Carries it out on a run that is held.
    """

    name: str
    basis: Basis
    look: Callable[[Held], Check]


def judge(name: str, faults: list[str], sound: str) -> Check:
    """PASS with one line of evidence when there are no faults, FAIL with the faults otherwise."""
    return Check(name, "FAIL", tuple(faults)) if faults else Check(name, "PASS", (sound,))


def looked(rule: Rule[Held], held: Held) -> Check:
    """A check carried out; one that cannot read what it needs fails, and says what."""
    try:
        found = rule.look(held)
    except AssayError as error:
        found = Check(rule.name, "FAIL", (str(error),))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        # Bytes of a stranger: whatever shape they have, the answer is a verdict and not a traceback.
        found = Check(rule.name, "FAIL", (f"the record cannot be read: {type(error).__name__}: {error}",))
    return replace(found, basis=rule.basis)
