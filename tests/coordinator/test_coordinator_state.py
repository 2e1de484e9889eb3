"""A run's lock, its state, and how inputs and configurations are held against each other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.backends.base import Command
from assay.coordinator import frozen
from assay.coordinator.directory import attempt_folder, journal, launch_folder
from assay.coordinator.frozen import Frozen
from assay.coordinator.live import Live
from assay.coordinator.lock import Holder, RunLock, held, read_holder
from assay.coordinator.resume import configuration
from assay.coordinator.state import (
    JobState,
    Phase,
    Standing,
    State,
    exit_code,
    is_suite,
    load_state,
    save_state,
    standing,
)
from assay.coordinator.targets import compared, same_start
from assay.errors import ConfigurationError, RunError, VerificationError
from assay.paths import EVAL
from assay.run.directory import new_directory
from assay.run.key import Key
from assay.run.native import Scratch
from assay.run.server_check import leaks
from assay.run.state import Owner, this_process
from assay.suite.read import read_suite
from assay.suite.suite import Suite

HOLD = """\
import sys, pathlib
from assay.coordinator.lock import RunLock
with RunLock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def suite(**changed: Any) -> Suite:
    value: dict[str, Any] = {
        "name": "small",
        "description": "one job",
        "pins": "production",
        "targets": [{"name": "nobody", "protocol": "none", "max_concurrency": 2}],
        "jobs": [{"id": "one", "backend": "mock", "dataset": "mock", "target": "nobody"}],
    }
    return Suite.model_validate({**value, **changed})


def state(phase: Phase = "running", **changed: Any) -> State:
    began = "2026-01-01T00:00:00.000Z"
    return State(suite="small", phase=phase, started_at=began, jobs=(JobState(id="one"),), **changed)


@contextmanager
def holder_elsewhere(run: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run's lock while the block runs."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, run],
        env={**os.environ, "PYTHONPATH": str(EVAL)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def test_two_processes_never_hold_a_run_at_once_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    with holder_elsewhere(tmp_path) as other:
        with pytest.raises(RunError, match=f"is being written by process {other.pid} on "), RunLock(tmp_path):
            pass
        holder = read_holder(tmp_path)
        assert holder is not None
        assert (holder.owner.pid, holder.owner.alive, holder.foreign) == (other.pid, True, False)
        assert held(tmp_path)
        other.kill()
        other.wait()
        assert not held(tmp_path)
        with RunLock(tmp_path):
            mine = read_holder(tmp_path)
    assert mine is not None
    assert mine.owner == this_process()


def test_a_lock_of_this_process_excludes_a_second_one_too(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(RunError, match="two at once"), RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass


def test_a_lock_that_is_removed_lets_nobody_in_and_a_copy_is_not_live(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    run.mkdir()
    with holder_elsewhere(run) as other:
        shutil.copytree(run, copy)
        holder = read_holder(copy)
        assert holder is not None
        assert holder.owner.alive
        assert standing(copy, state(), holder) == "died"
        (run / "lock").unlink()
        assert standing(run, state(), None) == "live"
        with pytest.raises(RunError, match="is being written by"), RunLock(run):
            pass
        other.kill()
        other.wait()
        with RunLock(run), pytest.raises(RunError, match="is being written by"), RunLock(run):
            pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").symlink_to(precious)
    with pytest.raises(VerificationError, match="cannot be locked"), RunLock(run):
        pass
    assert precious.read_text() == "mine"


HERE = this_process()
DEAD = Owner(pid=HERE.pid, start_ticks=HERE.start_ticks + 1, boot_id=HERE.boot_id)
ELSEWHERE = Owner(pid=1, start_ticks=1, boot_id="another boot")


@pytest.mark.parametrize(
    ("phase", "owner", "host", "manifest", "expected", "code"),
    [
        ("running", HERE, "here", False, "live", 0),
        ("starting", HERE, "here", False, "live", 0),
        ("done", HERE, "here", False, "live", 0),
        ("running", DEAD, "here", False, "died", 5),
        ("recording", DEAD, "here", False, "died", 5),
        ("done", DEAD, "here", False, "died", 5),
        ("running", ELSEWHERE, "far away", False, "foreign", 5),
        ("done", ELSEWHERE, "far away", True, "done", 0),
        ("done", DEAD, "here", True, "done", 0),
        ("partial", DEAD, "here", True, "partial", 4),
        ("failed", DEAD, "here", True, "failed", 5),
        ("cancelled", DEAD, "here", True, "cancelled", 6),
        ("paused", DEAD, "here", False, "paused", 5),
    ],
)
def test_a_run_stands_as_its_state_and_its_writer_say(
    tmp_path: Path, phase: Phase, owner: Owner, host: str, manifest: bool, expected: Standing, code: int
) -> None:
    if manifest:
        (tmp_path / "manifest.json").write_text("{}")
    holder = Holder(owner=owner, host=host, since="2026-01-01T00:00:00.000Z")
    found = state(phase)
    # A process of ours that does not hold the directory writes elsewhere.
    with RunLock(tmp_path) if owner == HERE else contextlib.nullcontext():
        assert standing(tmp_path, found, holder) == expected
        assert exit_code(standing(tmp_path, found, holder), found) == code


def test_an_error_before_there_were_results_keeps_its_exit_code(tmp_path: Path) -> None:
    failed = state("failed", error="nobody answers", error_exit_code=3)
    assert exit_code(standing(tmp_path, failed, None), failed) == 3


def test_a_state_is_read_back_whole_and_only_as_what_it_is(tmp_path: Path) -> None:
    assert not is_suite(tmp_path)
    with pytest.raises(VerificationError, match="is not a run"):
        load_state(tmp_path)
    save_state(tmp_path, state().with_job("one", attempt=2, done=3))
    assert load_state(tmp_path).job("one").attempt == 2
    assert is_suite(tmp_path)
    path = tmp_path / "state.json"
    value = json.loads(path.read_bytes())
    path.write_text(json.dumps({**value, "schema_version": "assay/suite-state/v9"}))
    with pytest.raises(VerificationError, match="is of the form assay/suite-state/v9"):
        load_state(tmp_path)
    path.write_text(json.dumps({**value, "schema_version": "assay/state/v1"}))
    assert not is_suite(tmp_path)


def test_no_name_of_a_job_leads_out_of_the_run(tmp_path: Path) -> None:
    for name in ("../../evil", "a/b", "..", "", "/etc", "a\n"):
        for place in (lambda name: attempt_folder(name, 1), lambda n: journal(tmp_path, n)):
            with pytest.raises(ConfigurationError, match="one path segment"):
                place(name)
        with pytest.raises(ConfigurationError, match="one path segment"):
            launch_folder(tmp_path, name)


def test_a_directory_is_named_by_suite_moment_and_configuration_and_made_once(tmp_path: Path) -> None:
    small = suite()
    first, second = (new_directory(small.name, small.digest, tmp_path) for _ in range(2))
    assert first != second
    assert re.fullmatch(rf"small\.\d{{8}}T\d{{6}}Z-{small.digest[:8]}", first.name)


def test_what_decides_a_result_is_told_by_its_dotted_name_and_how_the_coordinator_works_is_not() -> None:
    before = suite(running={"max_parallel_jobs": 1})
    job = {"id": "one", "backend": "mock", "dataset": "mock", "target": "nobody"}
    after = suite(
        running={"max_parallel_jobs": 4, "retention": "none", "heartbeat_seconds": 1},
        jobs=[{**job, "generation": {"temperature": 0.6, "extra_body": {"a": {"b": 1}}}, "limit": 5}],
    )
    assert frozen.changed(before, before) == []
    assert frozen.changed(before, suite(running={"max_parallel_jobs": 4}, description="other")) == []
    assert frozen.changed(before, after) == [
        "jobs.one.generation.extra_body.a.b was not there, is 1",
        "jobs.one.generation.temperature was not there, is 0.6",
        "jobs.one.limit was not there, is 5",
    ]
    two = suite(jobs=[{**job, "id": "two"}, job])
    assert [what.partition(" ")[0] for what in frozen.changed(before, two)][-1] == "order"


def test_inputs_that_differ_are_named_and_only_those_of_the_jobs_in_question() -> None:
    before = Frozen(
        {"tree:core": "1", "data:x/y": "2", "data:z": "3"}, {"a": ["data:x/y", "tree:core"], "b": ["data:z"]}
    )
    after = Frozen({"tree:core": "9", "data:x/y": "2", "data:z": "4"}, before.jobs)
    assert frozen.differences(before, before) == []
    assert frozen.differences(before, after) == [
        "inputs.data:z was 3, is 4",
        "inputs.tree:core was 1, is 9",
    ]
    assert frozen.differences(before, after, ("a",)) == ["inputs.tree:core was 1, is 9"]
    gone = Frozen({"tree:core": "1"}, {"a": ["tree:core"]})
    assert frozen.differences(before, gone, ("a",)) == ["inputs.data:x/y was 2, is not there"]


def test_a_suites_file_that_cannot_be_read_is_a_difference_and_one_that_is_gone_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = tmp_path / "run", tmp_path / "small.toml"
    (run / "provenance").mkdir(parents=True)
    (run / "provenance/source.json").write_text(json.dumps({"reference": f"{path}:few"}))
    text = (
        'description = "one job"\n[target.nobody]\nprotocol = "none"\nmax_concurrency = 2\n'
        '[[job]]\nid = "one"\nbackend = "mock"\ndataset = "mock"\ntarget = "nobody"\n'
        '[list]\nfew = ["one"]\n'
    )
    path.write_text(text)
    small = read_suite(f"{path}:few").suite
    assert configuration(run, small, state()) == []
    broken = (
        text + "[",
        text + "[oops]\n",
        text.replace("few =", "other ="),
        text.replace('"mock"', '"mok"', 1),
    )
    for changed in broken:
        path.write_text(changed)
        (told,) = configuration(run, small, state())
        assert told.startswith(("suite.jobs.one.backend was", "the suite as it is now cannot be compared")), (
            told
        )
    path.write_text(text.replace("[target", "[running]\nheartbeat_seconds = 3\n[target"))
    assert configuration(run, small, state()) == []
    assert "[running] has changed, and is not taken over" in capsys.readouterr().err
    path.unlink()
    assert configuration(run, small, state()) == []
    assert "taken from the run itself" in capsys.readouterr().err


def test_a_container_that_was_started_again_is_the_same_target_for_a_resume_and_another_one_is_not(
    tmp_path: Path,
) -> None:
    first = {"id": "a", "image": "vllm", "state": "running", "started_at": "1", "restart_count": 0}

    def told(**changed: object) -> dict[str, Any]:
        return {"endpoints": [{"models": ["m"], "container": {**first, **changed}}, {"container": None}]}

    def differences(**changed: object) -> list[str]:
        return compared("server.x", same_start(told()), same_start(told(**changed)))

    assert differences(started_at="2", restart_count=3, state="starting") == []
    assert [what.partition(" ")[0] for what in differences(id="b", started_at="2")] == [
        "server.x[0].container.id"
    ]


def test_what_a_child_is_given_in_secret_is_in_no_record_and_looked_for_at_the_end(tmp_path: Path) -> None:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        live = Live(tmp_path, suite(), {}, {}, state(), Scratch(tmp_path), loop)
    live.lanes.add("key-of-a-lane-0451")
    proxy = "http://someone:pass%2Fword-0451@proxy.example:3128"
    command = Command(
        words=["evaluator", "search-key-0451"],
        environment={"HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1", "ODD": "http://[@"},
        cwd=tmp_path,
        secrets={"SEARCH_KEY": Key("search-key-0451"), "LANE_KEY": Key("key-of-a-lane-0451")},
    )
    live.launched("one", 1, command)
    told = (launch_folder(tmp_path, "one") / "command.1.json").read_text()
    assert json.loads(told)["environment"]["HTTPS_PROXY"] == "http://someone:***@proxy.example:3128"
    for secret in ("search-key-0451", "pass%2Fword-0451", "pass/word-0451", "key-of-a-lane-0451"):
        assert secret not in told
        assert secret not in live.secrets.text(f"it said {secret}")
    assert {name: key.reveal() for name, key in live.given.items()} == {
        "SEARCH_KEY": "search-key-0451",
        "HTTPS_PROXY": "pass/word-0451",
    }
    (tmp_path / "native.json").write_text('{"key": "search-key-0451"}')
    (problem,) = leaks(tmp_path, live.given["SEARCH_KEY"], "the secret of SEARCH_KEY")
    assert problem.startswith("native.json holds the secret of SEARCH_KEY")
