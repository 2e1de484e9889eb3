"""`python -m bench.demo`: how long `demo` takes, how much of that is Assay's own, and whether answers repeat.

Each run is the user's command, timed from outside. Assay's own share is everything but the evaluator's
command and the server's start: 1 - (native + server) / wall, from the seconds that a run records. Answers
are compared by digest, task by task, between runs and between concurrencies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.files import read_json, read_jsonl
from assay.paths import ROOT
from bench.options import whole

OUTSIDE = ("native", "server")


@dataclass(frozen=True)
class Timing:
    """One run.

    Attributes:
        runtime: "docker" or "subprocess".
        concurrency: Rollouts in flight.
        wall_s: Of the whole command.
        own_share: Assay's share of the wall time, 0 to 1.
        seconds: By phase, as the run recorded them.
        run: Its directory.
    """

    runtime: str
    concurrency: int | None
    wall_s: float
    own_share: float
    seconds: Mapping[str, float]
    run: str


def run_demo(runtime: str, concurrency: int | None, profile: str) -> Timing:
    """Run the profile by the user's command and read what it recorded.

    Args:
        runtime: Where rollouts run.
        concurrency: Rollouts in flight, or None for the profile's own.
        profile: Its name.

    Raises:
        RuntimeError: the run did not end with exit code 0.
    """
    command = [str(ROOT / "eval" / "scripts" / "run"), profile, "--runtime", runtime, "--json"]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    wall = time.monotonic() - begin
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    run = Path(answer["run_dir"])
    seconds: dict[str, float] = read_json(run / "provenance" / "seconds.json")
    outside = sum(seconds.get(phase, 0.0) for phase in OUTSIDE)
    return Timing(runtime, concurrency, round(wall, 1), round(1 - outside / wall, 4), seconds, str(run))


def answers(run: Path) -> dict[str, str | None]:
    """The digest of each task's answer, by task and rollout."""
    return {
        f"{row['task_key']}#{row['rollout']}": row["answer_digest"]
        for row in read_jsonl(run / "samples.jsonl")
    }


def differing(timings: Sequence[Timing]) -> list[str]:
    """The tasks whose answers are not the same bytes in all runs."""
    first, *others = (answers(Path(timing.run)) for timing in timings)
    return sorted(key for key in first if any(other.get(key) != first[key] for other in others))


def main() -> int:
    """Run what was asked for, print timings and differing tasks; exit 1 when an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--profile", default="demo")
    parser.add_argument(
        "--runtime", choices=("docker", "subprocess"), action="append", help="may be repeated"
    )
    parser.add_argument(
        "--concurrency", type=whole(1), action="append", help="may be repeated; default: the profile's"
    )
    parser.add_argument("--repeats", type=whole(1), default=1, help="runs of each combination")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    combinations = [
        (runtime, concurrency)
        for runtime in arguments.runtime or ["subprocess"]
        for concurrency in arguments.concurrency or [None]
        for _ in range(arguments.repeats)
    ]
    timings = [run_demo(runtime, concurrency, arguments.profile) for runtime, concurrency in combinations]
    unlike = differing(timings)
    if arguments.json:
        print(json.dumps({"runs": [asdict(timing) for timing in timings], "differing": unlike}))
    else:
        for timing in timings:
            flight = f"{timing.concurrency or 'own'} in flight"
            share = f"{100 * timing.own_share:.1f} % Assay's own"
            print(f"{timing.runtime}, {flight}: {timing.wall_s} s, {share}")
        print(
            f"answers that differ between the runs: {len(unlike)}" + "".join(f"\n  {key}" for key in unlike)
        )
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())
