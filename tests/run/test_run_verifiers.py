"""The run with the real evaluator and taskset in their real environment, against a server with faults.

The plan holds a few tasks and is run as a resolved run, which is a user's command like any other. The real
harness starts a program for each rollout and repeats a failed call twice by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.planning import make_plan
from assay.profile import find_profile
from standin import Reply, StandIn
from toy_checkout import ROOT, processes, until

pytestmark = pytest.mark.slow

ASSAY = ROOT / ".venv/bin/assay"
CANARY = "canary-6b1d9e03aa57"
SIZES = {"letter_counting": 1, "gcd": 1, "chain_sum": 2}
PLANNED = sum(SIZES.values())
WAIT_S = 300.0


@dataclass(frozen=True)
class Real:
    """A run of the real command that is going on."""

    process: subprocess.Popen[str]
    runs: Path
    err: Path

    def wait(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and its JSON object."""
        out, _ = self.process.communicate(timeout=WAIT_S)
        lines = out.splitlines()
        return self.process.returncode, json.loads(lines[-1]) if lines else {}

    @property
    def run(self) -> Path:
        """Its run directory, once there is one."""
        until(lambda: list(self.runs.iterdir()))
        return next(self.runs.iterdir())

    @property
    def finished(self) -> int:
        """Rollouts in the evaluator's record."""
        traces = self.run / "reasoning-gym/traces.jsonl"
        return traces.read_bytes().count(b"\n") if traces.exists() else 0


@pytest.fixture(scope="module", autouse=True)
def _set_up() -> None:
    for program in (ASSAY, ROOT / "eval/evaluators/verifiers/.venv/bin/vf-eval"):
        if not program.exists():
            pytest.fail(f"{program} is missing; make it with: eval/scripts/setup", pytrace=False)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[StandIn], Real]]:
    """Starts the real command on a plan of a few tasks; what still runs at the end is ended."""
    runs = tmp_path / "runs"
    runs.mkdir()
    started: list[Real] = []

    def start(server: StandIn) -> Real:
        path = tmp_path / "resolved.json"
        path.write_text(json.dumps(small_plan(server)))
        key = tmp_path / "key"
        key.touch(mode=0o600)
        key.write_text(CANARY)
        words = [ASSAY, "run", path, "--runs", runs, "--key-file", key, "--json"]
        err = tmp_path / "err"
        with err.open("w") as stream:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdout=subprocess.PIPE,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        started.append(Real(process, runs, err))
        return started[-1]

    yield start
    for real in started:
        if real.process.poll() is None:
            real.process.terminate()
            real.process.wait(WAIT_S)
        if real.process.stdout is not None:
            real.process.stdout.close()


def small_plan(server: StandIn) -> dict[str, Any]:
    """The plan of `demo` with fewer families and tasks."""
    profile = find_profile("demo")
    made = make_plan(profile, None, "subprocess", None, server.base_url, server.model)
    plan = made.model_dump(mode="json")
    (entry,) = plan["entries"]
    head, *families = entry["launch"]["entry.toml"].split("[[env.taskset.families]]")
    kept = [text for text in families if text.split('"')[1] in SIZES]
    sized = [text.replace("size = 8", f"size = {SIZES[text.split(chr(34))[1]]}") for text in kept]
    entry["launch"]["entry.toml"] = "[[env.taskset.families]]".join([head, *sized])
    entry["tasks"] = PLANNED
    entry["max_concurrent"] = 2
    assert isinstance(plan, dict)
    return plan


def asks(body: dict[str, Any], text: str) -> bool:
    return text in body["messages"][-1]["content"]


def assay(*words: str | Path) -> tuple[int, dict[str, Any]]:
    command = [str(word) for word in (ASSAY, *words, "--json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_a_run_with_every_kind_of_answer_counts_it_audits_it_and_leaks_no_key(
    begin: Callable[[StandIn], Real], tmp_path: Path
) -> None:
    """An honest run whose server refuses one question, cuts one answer and gives one empty one."""
    seen: list[str] = []
    mended = threading.Event()

    def reply(number: int, body: dict[str, Any]) -> Reply:
        seen.append(command_lines())
        if asks(body, "letter") and not mended.is_set():
            return Reply(status=500)
        if asks(body, "Greatest Common"):
            return Reply(finish_reason="length")
        return Reply(text="")

    with StandIn(reply=reply, key=CANARY) as server:
        real = begin(server)
        code, answer = real.wait()
        assert code == 4, real.err.read_text()
        asked = [body["messages"][-1]["content"] for body in server.requests]
        require_honest(real, answer, asked)
        mended.set()
        resume_as_printed(Path(answer["run_dir"]))
        assert len(server.requests) == len(asked) + 1, "what had an answer was not asked again"
    assert not any(CANARY in line for line in seen)
    run = Path(answer["run_dir"])
    for place in (run, real.err, ROOT / ".assay/private"):
        for path in [place, *place.rglob("*")]:
            if path.is_file() and not path.is_symlink():
                assert CANARY.encode() not in path.read_bytes(), path


def require_honest(real: Real, answer: dict[str, Any], asked: list[str]) -> None:
    """What that run must say of itself, to every verb."""
    counts = answer["counts"]
    assert (counts["planned"], counts["errored"], counts["truncated"], counts["scored"]) == (4, 1, 1, 2)
    assert (counts["missing"], counts["empty"]) == (0, 2)
    assert sum("letter" in text for text in asked) == 3, "the harness asks again twice"
    run = Path(answer["run_dir"])
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    failed = next(row for row in rows if row["status"] == "errored")
    assert failed["family"] == "letter_counting"
    assert "500" in failed["error"]
    assert processes(run.name) == []
    code, audit = assay("audit", run)
    assert (code, audit["failed"]) == (5, ["profile"]), "the plan is demo's by its name alone"
    code, reward = assay("reward", run)
    assert (code, reward["status"]) == (0, "same")
    assert assay("status", run)[1]["status"] == "partial"
    code, summary = assay("summarize", run)
    assert (code, summary["counts"]) == (4, counts)


def resume_as_printed(run: Path) -> None:
    """Type what `assay status` prints for the entry, and look at what came of it."""
    _, status = assay("status", run)
    (recipe,) = status["resume"]["reasoning-gym"]
    assert (recipe["folder"], recipe["owed"]) == ("reasoning-gym", 1)
    printed = subprocess.run([ASSAY, "status", run], capture_output=True, text=True, check=False).stdout
    assert "a resumed run is not this run" in printed
    script = "\n".join(recipe["lines"])
    assert script in printed
    assert CANARY not in printed
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": os.environ["PATH"], "ASSAY_API_KEY": CANARY},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (run / "reasoning-gym/traces.jsonl").read_text().splitlines()]
    assert [row["ok"] for row in rows] == [True] * PLANNED
    assert (run / "reasoning-gym/logs/attempt_2").is_dir()
    again = assay("status", run)[1]["resume"]["reasoning-gym"][0]
    assert again["owed"] == 0
    code, audit = assay("audit", run)
    assert (code, "files" in audit["failed"]) == (5, True)
    shutil.rmtree(ROOT / ".assay/private" / run.name)


@pytest.mark.long
def test_a_server_that_refuses_every_question_gives_no_score_though_the_evaluator_exits_0(
    begin: Callable[[StandIn], Real],
) -> None:
    with StandIn(reply=lambda number, body: Reply(status=500)) as server:
        real = begin(server)
        code, answer = real.wait()
    assert code == 5, real.err.read_text()
    assert answer["counts"]["errored"] == PLANNED
    assert all(family["score"] is None for family in answer["scores"])
    state = json.loads((Path(answer["run_dir"]) / "state.json").read_text())
    assert state["entries"][0]["native_exit_code"] == 0


def in_mid_run(real: Real) -> None:
    """Wait until a rollout has finished and the programs of others run."""
    until(
        lambda: real.process.poll() is not None or (real.finished and len(processes(real.run.name)) > 1),
        WAIT_S,
    )
    assert real.process.poll() is None, real.err.read_text()


def held(number: int, body: dict[str, Any]) -> Reply:
    """The first question is answered at once, every other one never in a test's time."""
    return Reply(delay_s=0.0 if number == 0 else 20.0)


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ctrl_c_ends_the_harness_and_its_programs_and_keeps_what_finished(
    begin: Callable[[StandIn], Real], times: int
) -> None:
    with StandIn(reply=held) as server:
        real = begin(server)
        in_mid_run(real)
        finished = real.finished
        for _ in range(times):
            real.process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        code, answer = real.wait()
    assert code == 6
    assert processes(real.run.name) == []
    assert answer["counts"]["scored"] >= finished >= 1
    assert answer["counts"]["missing"] == PLANNED - answer["counts"]["scored"]
    assert (real.run / "manifest.json").is_file()
    assert assay("status", real.run)[0] == 6


def test_kill_9_ends_the_harness_and_its_programs_by_themselves(begin: Callable[[StandIn], Real]) -> None:
    with StandIn(reply=held) as server:
        real = begin(server)
        in_mid_run(real)
        os.kill(real.process.pid, signal.SIGKILL)
        real.process.wait(WAIT_S)
        until(lambda: processes(real.run.name) == [])
    code, status = assay("status", real.run)
    assert (code, status["status"]) == (5, "died")
    code, summary = assay("summarize", real.run)
    assert code == 5
    assert summary["counts"]["scored"] >= 1
