"""`assay reward RUN`: the reward that the upstream guide's jq command computes, beside ours.

The command stands in the upstream evaluation guide; a record whose reward cannot be had by it would not be
upstream's any more. It counts a failed episode as 0, as our scores do.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
from pathlib import Path

from assay.cli import answer, shared
from assay.errors import PrerequisiteError, VerificationError
from assay.plan import NAME, load_plan
from assay.record.episodes import TRACES
from assay.record.results import derive, load_tasks
from assay.run.state import load_state

PROGRAM = (
    "[.[].traces[] | [.rewards[]? | .score * .weight] | add // 0]"
    " | if length > 0 then add / length else 0 end"
)
TOLERANCE = 1e-9


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "reward", parents=[shared()], help="the upstream guide's reward beside ours"
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=reward)


def reward(arguments: argparse.Namespace) -> int:
    """Print both rewards of each entry; exit 5 when they differ."""
    load_state(arguments.run)
    plan = load_plan(arguments.run / NAME)
    tasks = load_tasks(arguments.run, plan)
    samples, _ = derive(arguments.run, plan, tasks)
    entries = {}
    same = True
    for entry in plan.entries:
        upstream = upstream_reward(arguments.run / entry.name / TRACES)
        rows = [row for row in samples if row.entry == entry.name and row.status != "missing"]
        ours = math.fsum(row.reward or 0.0 for row in rows) / len(rows) if rows else 0.0
        agree = math.isclose(upstream, ours, abs_tol=TOLERANCE)
        same = same and agree
        entries[entry.name] = {"upstream": upstream, "assay": ours, "rows": len(rows), "agree": agree}
        print(f"{entry.name}: upstream {upstream:.6f}, assay {ours:.6f} over {len(rows)} rows")
    if arguments.json:
        answer(
            {
                "run_dir": str(arguments.run.resolve()),
                "status": "same" if same else "differs",
                "entries": entries,
            }
        )
    return 0 if same else VerificationError.exit_code


def upstream_reward(traces: Path) -> float:
    """The mean reward of a native record by the upstream guide's jq program; 0 for an empty record.

    Raises:
        PrerequisiteError: jq is not installed.
        VerificationError: there is no record, or jq cannot read it.
    """
    jq = shutil.which("jq")
    if jq is None:
        raise PrerequisiteError("jq is not installed", "the upstream command needs it", "apt-get install jq")
    if not traces.is_file():
        raise VerificationError(f"{traces} is missing", "the run recorded nothing for this entry")
    done = subprocess.run([jq, "-s", PROGRAM, str(traces)], capture_output=True, check=False, timeout=300)
    if done.returncode != 0:
        raise VerificationError(
            f"jq cannot read {traces}", done.stderr.decode("utf-8", errors="replace").strip()
        )
    return float(done.stdout)
