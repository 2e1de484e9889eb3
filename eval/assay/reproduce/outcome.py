"""What asking again found: of each request, and of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.reproduce.question import Question
from assay.reproduce.said import Said

SCHEMA = "assay/reproduction/v1"
Verdict = Literal["same", "differs", "drawn", "unanswered"]
Status = Literal["same", "differs", "unanswered", "undecided"]
EXIT_CODES: Mapping[Status, int] = {"same": 0, "undecided": 0, "differs": 5, "unanswered": 3}


@dataclass(frozen=True)
class Outcome:
    """What became of one request.

    Attributes:
        question: It, and its recorded answer.
        verdict: "same"; "differs"; "drawn": it differs, and was drawn at random without a seed; "unanswered".
        why: How it differs, or why there is no answer; empty for the same.
        now: The answer; None where there is none.
        seconds: It took; None where there is none.
    """

    question: Question
    verdict: Verdict
    why: tuple[str, ...] = ()
    now: Said | None = None
    seconds: float | None = None

    @property
    def usage(self) -> str | None:
        """How the token counts differ, by name; None where they do not, or one of them tells none."""
        then, now = self.question.then.usage, None if self.now is None else self.now.usage
        if not then or not now:
            return None
        names = sorted(name for name in then.keys() & now.keys() if then[name] != now[name])
        return ", ".join(f"{name} {then[name]}, now {now[name]}" for name in names) or None

    def describe(self) -> dict[str, Any]:
        """As it stands in the JSON answer."""
        return {
            **self.question.of,
            "record": self.question.where,
            "request_key": self.question.request.key,
            "sampled_without_seed": self.question.drawn,
            "verdict": self.verdict,
            "why": list(self.why),
            "recorded": self.question.then.digest,
            "answered": None if self.now is None else self.now.digest,
            "usage": self.usage,
            "seconds": self.seconds,
        }


def status_of(outcomes: tuple[Outcome, ...]) -> Status:
    """One word for all: a difference goes first, then a missing answer, then what nobody can say."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    if counts["differs"]:
        return "differs"
    if counts["unanswered"]:
        return "unanswered"
    return "same" if counts["same"] else "undecided"
