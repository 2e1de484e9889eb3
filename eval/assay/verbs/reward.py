"""`assay reward RUN`: the reward that the upstream guide's jq command computes, beside ours.

The command stands in the upstream evaluation guide; a record whose reward cannot be had by it would not be
upstream's any more. It is a mean over traces, of all native invocations of an entry together: a failure that
left no trace is not in it, and one that left rewards counts with them, where our score counts it as 0. The
guide's command stops at a reward that its scorer never gave (null); such records are read with those left
out, which is then said. Verifiers 0.1 writes no traces but each row's reward: there it is their mean.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.cli import answer, shared
from assay.console import printable
from assay.errors import PrerequisiteError, VerificationError
from assay.plan import NAME, EntryPlan, Plan, load_plan
from assay.record import dialects
from assay.record.results import derive, load_tasks
from assay.record.sample import Sample
from assay.run.state import load_state

PROGRAM = (
    "[.[].traces[] | [.rewards[]? | .score * .weight] | add // 0]"
    " | if length > 0 then add / length else 0 end"
)
WITHOUT_NULLS = PROGRAM.replace(".rewards[]?", ".rewards[]? | select(. != null)")
V0 = "vf-eval-v0"
PROGRAM_V0 = "[.[].reward] | if length > 0 then add / length else 0 end"
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Compared:
    """An entry's reward by the guide's command and by ours.

    Attributes:
        upstream: What jq computes.
        assay: The same mean by our reading of the same records.
        rows: What both are means over.
        failed: Reward of rows that our score counts as 0: they failed after a scorer had spoken.
        nulls: The guide's command as it stands stops at a reward that was never given.
        agree: Whether the two are the same number, over rows that all were planned.
    """

    upstream: float
    assay: float
    rows: int
    failed: float
    nulls: bool
    agree: bool


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "reward", parents=[shared()], help="the upstream guide's reward beside ours"
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=reward)


def reward(arguments: argparse.Namespace) -> int:
    """Print both rewards of each entry; exit 5 when they differ, or an entry has no record."""
    load_state(arguments.run)
    plan = load_plan(arguments.run / NAME)
    samples, _ = derive(arguments.run, plan, load_tasks(arguments.run, plan))
    begun = [entry for entry in plan.entries if recorded(arguments.run, plan, entry)]
    never = [entry.name for entry in plan.entries if entry not in begun]
    # Where nothing was recorded at all, the comparison says so.
    entries = {entry.name: compare(arguments.run, plan, entry, samples) for entry in begun or plan.entries}
    for name in never:
        print(printable(f"{name}: nothing is recorded"))
    for name, found in entries.items():
        line = f"{name}: upstream {found.upstream:.6f}, assay {found.assay:.6f} over {found.rows} rows"
        print(printable(line if found.agree else f"{line}: they differ"))
        if found.failed:
            print(f"  {found.failed:.6f} of the sum stands in rows that our score counts as 0")
        if found.nulls:
            print("  the guide's command stops at a reward that was never given (null): left out here")
    same = not never and all(found.agree for found in entries.values())
    if arguments.json:
        answer(
            {
                "run_dir": str(arguments.run.resolve()),
                "status": "same" if same else "differs",
                "entries": {name: asdict(found) for name, found in entries.items()},
                "unrecorded": never,
            }
        )
    return 0 if same else VerificationError.exit_code


def recorded(run: Path, plan: Plan, entry: EntryPlan) -> bool:
    """Whether any of an entry's native invocations left a record."""
    reader = dialects.of(plan.dialect)
    return any(reader.record(run / part.folder).is_file() for part in entry.parts)


def compare(run: Path, plan: Plan, entry: EntryPlan, samples: Sequence[Sample]) -> Compared:
    """Both rewards of an entry, over the records of all its native invocations.

    Raises:
        PrerequisiteError: jq is not installed.
        VerificationError: there is no record, or one cannot be read.
    """
    reader = dialects.of(plan.dialect)
    upstream, nulls = upstream_reward(
        plan.dialect, [reader.record(run / part.folder) for part in entry.parts]
    )
    found = [row for part in entry.parts for row in reader.rows(run / part.folder)]
    planned = [row for row in samples if row.entry == entry.name and row.status != "missing"]
    count = sum(row.counted for row in found)
    ours = math.fsum(row.reward for row in found) / count if count else 0.0
    return Compared(
        upstream=upstream,
        assay=ours,
        rows=count,
        failed=math.fsum(row.reward for row in found if not row.ok),
        nulls=nulls,
        agree=len(planned) == len(found) and math.isclose(upstream, ours, abs_tol=TOLERANCE),
    )


def upstream_reward(dialect: str, records: Sequence[Path]) -> tuple[float, bool]:
    """The mean reward of native records by the upstream guide's jq program, and whether nulls stopped it.

    It is 0 for empty records.

    Args:
        dialect: What the records are.
        records: Those of all native invocations of an entry.

    Raises:
        PrerequisiteError: jq is not installed.
        VerificationError: there is no record, or jq cannot read one.
    """
    jq = shutil.which("jq")
    if jq is None:
        raise PrerequisiteError("jq is not installed", "the upstream command needs it", "apt-get install jq")
    present = [path for path in records if path.is_file()]
    if not present:
        raise VerificationError(f"{records[0]} is missing", "the run recorded nothing for this entry")
    failed = b""
    for program in (PROGRAM_V0,) if dialect == V0 else (PROGRAM, WITHOUT_NULLS):
        words = [jq, "-s", program, *map(str, present)]
        done = subprocess.run(words, capture_output=True, check=False, timeout=300)
        if done.returncode == 0:
            return float(done.stdout), bool(failed)
        failed = done.stderr
    reason = failed.decode("utf-8", errors="replace").strip()
    raise VerificationError(f"jq cannot read {', '.join(map(str, present))}", reason)
