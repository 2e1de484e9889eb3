"""Reproducing a run: pick samples, find the server, ask, compare. Nothing is written into the run."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.console import step
from assay.coordinator.directory import load_suite
from assay.errors import ConfigurationError
from assay.plan import NAME, load_plan
from assay.reproduce import journals, records
from assay.reproduce.ask import ask
from assay.reproduce.outcome import EXIT_CODES, SCHEMA, Outcome, Status, status_of
from assay.reproduce.question import Chosen
from assay.reproduce.server import Given, Reached, Wanted, of_profile, of_suite, reached
from assay.view.open import open_run

SEED_BITS = 63


@dataclass(frozen=True)
class Reproduction:
    """What was found.

    Attributes:
        run: The run directory.
        seed: What picked the samples.
        chosen: What was picked.
        wanted: Whom it was asked.
        server: Who that said it was.
        outcomes: Of each request, in the order of the record.
    """

    run: Path
    seed: int
    chosen: Chosen
    wanted: Wanted
    server: Reached
    outcomes: tuple[Outcome, ...]

    @property
    def status(self) -> Status:
        """One word for all of it."""
        return status_of(self.outcomes)

    @property
    def exit_code(self) -> int:
        """0 the same, or nobody can say; 5 an answer differs; 3 one is missing."""
        return EXIT_CODES[self.status]

    def describe(self) -> dict[str, Any]:
        """The JSON answer."""
        counts = Counter(outcome.verdict for outcome in self.outcomes)
        return {
            "schema_version": SCHEMA,
            "run_dir": str(self.run.resolve()),
            "status": self.status,
            "exit_code": self.exit_code,
            "seed": self.seed,
            "samples": self.chosen.samples,
            "finished": self.chosen.finished,
            "left_out": list(self.chosen.left_out),
            "target": self.wanted.target.name,
            "model": {"recorded": self.wanted.model, "asked": self.server.endpoints[0].model},
            "server": {
                "base_url": None if self.wanted.own else [each.base_url for each in self.server.endpoints],
                "recorded": (self.server.before.get("identity") or {}).get("system_fingerprint"),
                "claimed": self.server.identity.fingerprint,
                "differences": list(self.server.differences),
            },
            "counts": {verdict: counts[verdict] for verdict in ("same", "differs", "drawn", "unanswered")},
            "requests": [outcome.describe() for outcome in self.outcomes],
        }


def reproduce(
    run: Path,
    given: Given,
    most: int,
    seed: int | None,
    told: Callable[[int, Chosen, Wanted, Reached], None],
) -> Reproduction:
    """Ask a server again what a run asked.

    Args:
        run: The run directory.
        given: Which server.
        most: How many samples.
        seed: Which samples; drawn where it is None.
        told: Told of what will be asked and of whom, before anything is asked.

    Raises:
        ConfigurationError: the options do not say whom to ask.
        PrerequisiteError: nobody answers there.
        VerificationError: the run cannot be read.
        RunError: it holds nothing that can be asked again.
    """
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    view = open_run(run)
    if view.kind == "suite":
        suite = load_suite(run)
        wanted = of_suite(run, suite, given)
        chosen = journals.choose(run, suite, wanted.asked, seed, most)
    elif view.kind == "profile":
        wanted = of_profile(run, load_plan(run / NAME), given)
        chosen = records.choose(view, seed, most)
    else:
        raise ConfigurationError(
            f"{run} is what was exported of a run",
            "it holds no question and no answer",
            "take the run itself",
        )
    with reached(wanted) as server:
        told(seed, chosen, wanted, server)
        with step(f"asking {len(chosen.questions)} requests of {chosen.samples} samples again"):
            outcomes = ask(chosen.questions, wanted.target, server)
    return Reproduction(run, seed, chosen, wanted, server, outcomes)
