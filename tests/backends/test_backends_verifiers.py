"""An entry of a profile as a suite's job: the real command, a run in the job's folder, its rows the job's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from driven import KEY, Done, Launcher, drive

from assay.backends.verifiers import Verifiers
from assay.errors import ConfigurationError
from assay.record.dataset_result import JobRecord
from assay.record.results import load_summary
from assay.record.suite_results import summarise_suite
from assay.record.summary import Summary
from assay.reproduce import records
from assay.suite.job import Job
from assay.suite.suite import Suite
from assay.suite.target import Target
from assay.view.open import open_run
from standin import Reply, StandIn

HOST = {"runtime": "subprocess"}


def job_of(**more: Any) -> dict[str, Any]:
    """A job that asks a part of `demo` on the host."""
    return {"dataset": "demo/reasoning-gym", "limit": 3, "backend_args": HOST, **more}


@pytest.mark.slow
def test_a_part_of_an_entry_is_asked_with_the_jobs_sampling_and_is_a_run_of_its_own(tmp_path: Path) -> None:
    failing: list[Any] = []

    def reply(number: int, body: dict[str, Any]) -> Reply:
        failing.append(failing[0] if failing else body["messages"])
        return Reply(status=500) if body["messages"] == failing[0] else Reply("<answer>1</answer>")

    options = {"temperature": 0.5, "max_tokens": 9, "top_k": 4, "seed": 3}
    with StandIn(reply, key=KEY) as server:
        done = drive(Verifiers(), tmp_path / "run", job_of(generation=options), server.base_url)
        assert server.most_in_flight <= 2
        assert len({str(request["messages"]) for request in server.requests}) == 3
        assert {name: server.requests[0].get(name) for name in options} == options
    assert [row.entry for row in done.rows] == ["job"] * 3
    assert sorted(row.status for row in done.rows) == ["errored", "scored", "scored"]
    scored = next(row for row in done.rows if row.status == "scored")
    assert scored.rewards[done.normalised.primary] == scored.reward
    assert (tmp_path / "run" / str(scored.record)).is_file()
    (inner,) = (path.parent for path in done.context.folder.glob("*/summary.json"))
    assert load_summary(inner).counts.planned == 3
    agrees(done, load_summary(inner))
    built = [json.loads(each.request.body) for each in records.choose(open_run(inner), 0, 9).questions]
    assert [body in server.requests for body in built] == [True, True], "as it was asked, byte order apart"
    assert done.normalised.problems == ()
    assert any("select" in note for note in done.normalised.notes)
    assert done.launcher.reached[-1].total == 3
    assert all(KEY not in word for word in done.launcher.commands[0].words)
    for path in done.context.folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def agrees(done: Done, profile: Summary) -> None:
    """The suite's figures are those of the run in the job's folder, which has them from its own records."""
    found = done.normalised
    suite = Suite(
        name="one",
        description="",
        pins="production",
        targets=(done.context.target,),
        jobs=(done.context.job,),
    )
    record = JobRecord(
        done.context.job, 3, done.rows, found.primary, sampling=found.sampling, baselines=found.baselines
    )
    (job,) = summarise_suite(suite, [record]).jobs
    assert (job.status, job.sampling) == (profile.status, profile.entries[0].sampling)
    assert len(job.families) == len(profile.families)
    for ours, theirs in zip(job.families, profile.families, strict=True):
        same = {"entry": "job", "rewards": {**theirs.rewards, found.primary: theirs.score}}
        assert ours == theirs.model_copy(update=same)


@pytest.mark.long
def test_a_run_that_was_killed_leaves_what_had_finished(tmp_path: Path) -> None:
    def slow(number: int, body: dict[str, Any]) -> Reply:
        return Reply("<answer>1</answer>", delay_s=0.0 if number < 2 else 30.0)

    with StandIn(slow) as server:
        launcher = Launcher(until=lambda reached: reached.done >= 2)
        job = job_of(limit=4)
        done = drive(Verifiers(), tmp_path / "run", job, server.base_url, slots=1, launcher=launcher)
    assert done.ended.code == -9
    assert [row.status for row in done.rows] == ["scored"] * 2 + ["missing"] * 2
    assert any("no end of its own" in problem for problem in done.normalised.problems)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"dataset": "demo"}, "PROFILE/ENTRY"),
        ({"dataset": "dmo/reasoning-gym"}, '"demo"'),
        ({"dataset": "demo/reasoning-gim"}, "reasoning-gym"),
        ({"dataset": "demo/reasoning-gym", "repeats": 2}, "repeats = 1"),
        ({"dataset": "quick/aime24", "backend_args": HOST}, "does not run on the subprocess runtime"),
        ({"dataset": "demo/reasoning-gym", "backend_args": {"runtme": "docker"}}, "runtime"),
        ({"dataset": "full-sampled/aime24", "repeats": 20, "generation": {"seed": 1}}, "a seed for each"),
    ],
)
def test_a_job_that_contradicts_its_entry_is_refused_by_its_configuration(
    job: dict[str, Any], told: str
) -> None:
    target = Target(name="there", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=1)
    whole = Job.model_validate({"id": "job", "backend": "verifiers", "target": "there", **job})
    with pytest.raises(ConfigurationError, match=told):
        Verifiers().validate(whole, target)


def test_the_plan_is_the_profiles_cut_to_the_limit() -> None:
    target = Target(name="there", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=1)

    def plan(**job: Any) -> tuple[int | None, tuple[str, ...]]:
        whole = Job.model_validate({"id": "job", "backend": "verifiers", "target": "there", **job})
        return Verifiers().plan(whole, target).total, tuple(Verifiers().data(whole))

    assert plan(dataset="demo/reasoning-gym") == (80, ())
    assert plan(dataset="demo/reasoning-gym", limit=7) == (7, ())
    assert plan(dataset="full-sampled/aime24", repeats=20, limit=2) == (40, ("aime24",))
