"""Taking a suite's run up again: only if everything that decides its result is as it was.

What is compared, in this order, and told by name: the configuration in the run directory, the suite's own
file as it is now, every frozen input, and who the targets say they are. A run that is refused is left as it
was found, byte for byte, so that what had been audited before still can be.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from assay.console import say
from assay.coordinator import frozen
from assay.coordinator.conduct import SOURCE, Finished, begun, carry_out
from assay.coordinator.directory import load_suite
from assay.coordinator.live import Live
from assay.coordinator.lock import RunLock
from assay.coordinator.state import State, load_state
from assay.errors import ConfigurationError, VerificationError
from assay.files import read_json
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import run_files, withdraw_statement
from assay.run import provenance
from assay.signing.key import SigningKey
from assay.signing.sign import sign_late
from assay.suite.check import check_runtime, check_suite
from assay.suite.read import gone, read_suite
from assay.suite.suite import Suite

SHOWN = 12


def resume(run: Path, signer: SigningKey | None = None) -> Finished | None:
    """Go on with a run where it was; None when nothing is left to be done.

    Args:
        run: The run directory.
        signer: Who vouches for the record; None for nobody. A run that is done and not signed is signed now.

    Raises:
        RunError: another process writes into it, or the disk is full.
        VerificationError: it is no suite's run, or something that decides its result is not what it was.
        AssayError: it cannot go on.
    """
    run = run.resolve()
    load_state(run)
    with RunLock(run):
        state = load_state(run)
        suite = load_suite(run)
        # A link in it would be written through, to wherever it leads.
        run_files(run)
        if state.phase == "done" and (run / MANIFEST).exists():
            sign_late(run, signer)
            return None
        found = configuration(run, suite, state)
        if found:
            raise refused(run, found)
        check_suite(suite)
        check_runtime(suite, os.environ)
        jobs = [job for job in state.jobs if not job.settled]
        say(f"assay: {run}: {len(jobs)} of {len(state.jobs)} jobs are left")
        resumed = state.model_copy(update={"resumed": state.resumed + 1})
        return carry_out(run, suite, resumed, compare, signer)


def compare(live: Live, found: frozen.Frozen) -> None:
    """Refuse to go on with other inputs or other targets than the run began with; then open the run again."""
    if begun(live.state):
        differ = frozen.differences(frozen.load(live.run), found)
        differ += live.targets.differ_from_first()
        if differ:
            raise refused(live.run, differ)
    # From here on the run is written into: it is not what its manifest says any more, nor its statement.
    withdraw_statement(live.run)
    (live.run / MANIFEST).unlink(missing_ok=True)


def configuration(run: Path, suite: Suite, state: State) -> list[str]:
    """How the configuration differs from the one that the run began with.

    Args:
        run: The run directory.
        suite: As the run directory has it.
        state: Where the run stands.
    """
    differ = []
    if begun(state) and frozen.load(run).inputs.get("suite:configuration") != suite.digest:
        differ.append("resolved.json is not what the run began with")
    try:
        reference = str(read_json(run / provenance.FOLDER / SOURCE)["reference"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerificationError(
            f"{run / provenance.FOLDER / SOURCE} cannot be read", str(error), "start a new run"
        ) from error
    try:
        now = read_suite(reference).suite
    except ConfigurationError as error:
        if not gone(reference):
            return [*differ, f"the suite as it is now cannot be compared: {error.what}: {error.why}"]
        say(f"assay: the suite is taken from the run itself: {error.what}")
        return differ
    if now.running != suite.running:
        say("assay: [running] has changed, and is not taken over")
    return differ + [f"suite.{what}" for what in frozen.changed(suite, now)]


def refused(run: Path, differ: Sequence[str]) -> VerificationError:
    """The error that names every difference."""
    shown = [*differ[:SHOWN], *([f"and {len(differ) - SHOWN} more"] if len(differ) > SHOWN else [])]
    return VerificationError(
        f"{run} is not resumed: {len(differ)} thing(s) that decide its result are not what they were",
        "; ".join(shown),
        "restore them, or start a new run",
    )
