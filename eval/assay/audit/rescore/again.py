"""`assay audit RUN --rescore`: the upstream scorers run again on what a run saved.

Nothing that a run says of a scorer is believed: programs, tasksets, configurations and data are this
checkout's, the answers alone are the run's, and nothing is written into it. What cannot be scored here is
UNKNOWN and says what it lacks. Scorers are children without a network; one that works in a sandbox reaches
it over the Docker engine's socket on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from assay.audit.case import Case
from assay.audit.check import Check, Rule, looked
from assay.audit.rescore import entries
from assay.coordinator.state import is_suite
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.record.manifest import run_files

NAME = "rescore"


def rescore(run: Path, within: str = "") -> list[Check]:
    """A check for each entry of a profile's run, or for each job of a suite's; none writes into the run.

    Args:
        run: The run directory.
        within: Goes before an entry's name, where the run is a job's.
    """
    try:
        run_files(run)
        if is_suite(run):
            # Here alone: a profile's run needs no backend.
            from assay.audit.rescore import jobs

            return jobs.checks(run, guarded, rescore)
        case = Case(run)
        planned = case.plan.entries
    except (VerificationError, ConfigurationError, OSError) as error:
        return [Check(NAME, "FAIL", (f"it cannot be read what was asked: {error}",))]
    return [guarded(f"{NAME} {within}{entry.name}", partial(entries.check, case, entry)) for entry in planned]


def guarded(name: str, check: Callable[[str], Check]) -> Check:
    """A check carried out; what is missing here makes it unknown, what the record lacks fails it."""

    def look(held: str) -> Check:
        try:
            return check(held)
        except (PrerequisiteError, ConfigurationError) as error:
            return Check(held, "UNKNOWN", (str(error),))

    return looked(Rule(name, "recomputed", look), name)
