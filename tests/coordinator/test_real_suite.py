"""The real evaluators in one suite, against our own server: killed once, resumed, and nothing asked twice.

EvalScope over a local set and over two subsets of BFCL-v4 from its wheel, Inspect AI over a local file, and a
part of `demo` through Verifiers, at two targets, each a server of its own that counts what it has in hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from suites import write

from assay.files import read_json, read_jsonl
from assay.gateway.kept import kept_answers
from assay.models import verify
from assay.paths import CACHE
from assay.reproduce import records
from assay.run.key import make_key_file
from assay.view.open import open_run
from tests.backends.evalscope_data import choices
from tests.coordinator.counted_server import COUNTED
from toy_checkout import ROOT, processes, until

pytestmark = pytest.mark.slow

FIRST, SECOND = 2, 1
ROWS = 10
SUBSETS = ("simple_python", "irrelevance")
WAIT_S = 400.0


@dataclass(frozen=True)
class Served:
    """One of our servers.

    Attributes:
        name: Of its model.
        url: Where it is.
        counted: What it wrote down.
    """

    name: str
    url: str
    counted: Path

    def lines(self) -> list[dict[str, Any]]:
        """What it wrote down so far."""
        return list(read_jsonl(self.counted)) if self.counted.exists() else []

    @property
    def answered(self) -> int:
        """Questions that were answered."""
        return sum(line["kind"] == "answered" and line["status"] == 200 for line in self.lines())

    @property
    def asked(self) -> Counter[str]:
        """How often each question came."""
        return Counter(line["digest"] for line in self.lines() if line["kind"] == "asked")


@contextlib.contextmanager
def served(name: str, slots: int, folder: Path, key_file: Path | None) -> Iterator[Served]:
    """Our server with the real model, as another name."""
    ready, counted, log = folder / f"{name}.json", folder / f"{name}.jsonl", folder / f"{name}.log"
    words = [sys.executable, "-m", "tests.coordinator.counted_server", str(verify("smollm2-135m"))]
    words += ["--port", "0", "--ready-file", str(ready), "--name", name, "--slots", str(slots)]
    words += [] if key_file is None else ["--key-file", str(key_file)]
    variables = {**os.environ, COUNTED: str(counted), "XDG_CACHE_HOME": str(CACHE)}
    with log.open("wb") as stream:
        process = subprocess.Popen(words, cwd=ROOT, env=variables, stdout=stream, stderr=stream)
    try:
        until(lambda: ready.exists() or process.poll() is not None, 300)
        assert process.poll() is None, log.read_text()
        yield Served(name, f"http://127.0.0.1:{read_json(ready)['port']}/v1", counted)
    finally:
        process.terminate()
        process.wait(60)


def sums(folder: Path) -> Path:
    """A local set for Inspect."""
    path = folder / "sums.jsonl"
    rows = [{"q": f"What is {n} + {n + 1}?", "a": str(2 * n + 1)} for n in range(ROWS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def jobs(folder: Path) -> list[dict[str, Any]]:
    """The suite's jobs."""
    greedy = {"temperature": 0, "max_tokens": 16}
    asked = {"backend": "evalscope", "generation": greedy}
    functions = {"subset_list": list(SUBSETS), "is_fc_model": False}
    return [
        {
            "id": "choices",
            "dataset": "general_mcq",
            "target": "first",
            "backend_args": {"local_data": str(choices(folder / "choices", ROWS)), "subset_list": ["demo"]},
            **asked,
        },
        {
            "id": "functions",
            "dataset": "bfcl_v4",
            "target": "second",
            "limit": 2,
            "backend_args": functions,
            **asked,
        },
        {
            "id": "sums",
            "backend": "inspect",
            "dataset": "json_dataset",
            "target": "second",
            "generation": greedy,
            "backend_args": {"file": str(sums(folder)), "input": "q", "target": "a", "scorer": "includes"},
        },
        {
            "id": "thread",
            "backend": "verifiers",
            "dataset": "demo/reasoning-gym",
            "target": "first",
            "limit": 4,
            "generation": {"max_tokens": 12},
            "backend_args": {"runtime": "subprocess"},
        },
    ]


PRIMARY = {"choices": "acc", "functions": "acc", "sums": "includes", "thread": "reward"}


def expected() -> dict[str, int]:
    """Rollouts of each job."""
    return {"choices": ROWS, "functions": 2 * len(SUBSETS), "sums": ROWS, "thread": 4}


def command(*words: str | Path) -> subprocess.Popen[str]:
    """The real command of this checkout."""
    whole = [sys.executable, "-m", "assay.cli", *map(str, words)]
    return subprocess.Popen(whole, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code and what it printed."""
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def reproduced(run: Path, first: Served, second: Served, key_file: Path) -> None:
    """Both servers say again what they said: asked the bytes that were kept, and what traces hold of them."""
    # Of two attempts the last: what a killed one left behind may have come to an end of its own.
    *_, inner = (path.parent for path in sorted(run.glob("thread/attempt-*/*/summary.json")))
    for words in (
        (run, "--target", "first", "--key-file", key_file),
        (run, "--target", "second"),
        (inner, "--base-url", first.url, "--key-file", key_file),
    ):
        code, out, err = done(command("reproduce", *words, "-n", "4", "--json"))
        assert code == 0, err
        assert json.loads(out.splitlines()[-1])["counts"]["same"] == 4
    kept = [json.loads(each.request.body) for each in kept_answers(run / "answers/thread.jsonl")]
    built = records.choose(open_run(inner), 0, 4).questions
    assert [json.loads(each.request.body) in kept for each in built] == [True] * 4


def test_real_evaluators_at_two_targets_are_killed_resumed_and_repeat_nothing(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key = make_key_file(key_file).reveal()
    runs = tmp_path / "runs"
    runs.mkdir()
    with (
        served("small-a", FIRST, tmp_path, key_file) as first,
        served("small-b", SECOND, tmp_path, None) as second,
    ):
        targets = {
            "first": {
                "base_url": first.url,
                "model": first.name,
                "max_concurrency": FIRST,
                "key_file": str(key_file),
            },
            "second": {"base_url": second.url, "model": second.name, "max_concurrency": SECOND},
        }
        suite = write(tmp_path / "real.toml", targets, jobs(tmp_path), max_parallel_jobs=4)
        process = command("run", "--suite", suite, "--runs", runs)
        until(lambda: process.poll() is not None or (first.answered >= 3 and second.answered >= 3), WAIT_S)
        assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate(timeout=WAIT_S)
        (run,) = runs.iterdir()
        until(lambda: not processes(run.name), 60)
        before = first.answered + second.answered
        code, out, err = done(command("resume", run, "--json"))
        assert code == 0, err
        after = {server.name: server.asked for server in (first, second)}
        lines = {server.name: server.lines() for server in (first, second)}
        reproduced(run, first, second, key_file)
    summary = json.loads(out.splitlines()[-1])
    assert summary["status"] == "done"
    found = {job["job"]: job for job in summary["jobs"]}
    counts = {name: job["counts"] for name, job in found.items()}
    assert {name: each["planned"] for name, each in counts.items()} == expected()
    assert all(each["completed"] == each["planned"] for each in counts.values()), counts
    assert {name: job["primary"] for name, job in found.items()} == PRIMARY
    rows = list(read_jsonl(run / "samples.jsonl"))
    assert Counter(row["entry"] for row in rows) == expected()
    # Every question was answered once; what was in flight at the kill alone may have been asked again.
    again = sum(count - 1 for asked in after.values() for count in asked.values())
    assert again <= FIRST + SECOND
    assert before > again
    # What was done is not begun again; what had begun goes on with the answers that it had.
    state = {job["id"]: job for job in read_json(run / "state.json")["jobs"]}
    resumed = [job for job in state.values() if job["attempt"] == 2]
    assert resumed
    assert any(job["spent"]["replayed"] for job in resumed)
    assert all(not job["spent"]["replayed"] for job in state.values() if job["attempt"] == 1)
    # A child that is started again asks exactly what it asked before.
    closed = {row["job"]: row for row in read_jsonl(run / "events.jsonl") if row["kind"] == "lane-closed"}
    assert {job["id"]: closed[job["id"]]["unclaimed"] for job in resumed} == {job["id"]: 0 for job in resumed}
    assert not found["functions"]["official"]
    for name, most in (("small-a", FIRST), ("small-b", SECOND)):
        assert 0 < max(line["in_flight"] for line in lines[name]) <= most
    for path in run.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path
    code, _, err = done(command("audit", run))
    assert code == 0, err
    shown = list(open_run(run).exchanges())
    assert len(shown) == len(rows)
    for row, exchange in shown:
        assert exchange is not None, row
        assert exchange.error is None, exchange.error
        assert {"user", "assistant"} <= {message.role for message in exchange.messages}, row
        assert row.reward in [part.score for part in exchange.parts], row
