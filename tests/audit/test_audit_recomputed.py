"""The audit against a liar who makes the manifest again: what can be computed again is, and is compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altered import Altered
from test_audit_files import audited, evidence

from toy_checkout import Toy

pytestmark = pytest.mark.slow

Change = Callable[[Altered], object]


def summary(change: Callable[[Any], object]) -> Change:
    return lambda run: run.json("summary.json", change)


def traces(change: Callable[[list[Any]], object]) -> Change:
    return lambda run: run.lines("count/traces.jsonl", change)


def every_input(change: Callable[[dict[str, Any]], object]) -> Change:
    def both(run: Altered) -> None:
        for when in ("before", "after-count"):
            run.json(f"provenance/inputs.{when}.json", lambda value: change(value["inputs"]))

    return both


def first_trace(episodes: list[Any]) -> Any:
    return episodes[0]["traces"][0]


def forged_pin(run: Altered) -> None:
    """A pin copy and its frozen digest changed together, so that the two agree."""
    path = run.run / "provenance/pins/runtime/Dockerfile"
    path.write_text("FROM elsewhere\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    every_input(lambda inputs: inputs.update({"file:runtime/Dockerfile": digest}))(run)


CHANGES: dict[str, tuple[Change, str, str]] = {
    "the command": (
        lambda run: run.json(
            "provenance/launch/count/command.json", lambda value: value["command"].append("--resume")
        ),
        "configuration",
        "provenance/launch/count/command.json: is not the command",
    ),
    "a count": (
        summary(lambda value: value["counts"].update(scored=5, errored=1)),
        "summary",
        "summary.json.counts.scored: recorded 5, computed 6",
    ),
    "a family's score": (
        summary(lambda value: value["families"][1].update(score=1.0)),
        "summary",
        "summary.json.families[1].score: recorded 1.0",
    ),
    "an interval": (
        summary(lambda value: value["families"][0].update(low=0.6)),
        "summary",
        "summary.json.families[0].low: recorded 0.6",
    ),
    "a baseline": (
        summary(lambda value: value["families"][0].update(baseline=0.1)),
        "summary",
        "summary.json.families[0].baseline: recorded 0.1",
    ),
    "a family left out": (summary(lambda value: value["families"].pop()), "summary", "summary.json.families"),
    "the status": (
        summary(lambda value: value.update(status="partial")),
        "state",
        "state.json says done, summary.json partial",
    ),
    "the description": (
        summary(lambda value: value.update(description="a measure of intelligence")),
        "summary",
        "summary.json.description",
    ),
    "egress in the summary": (
        summary(lambda value: value.update(egress="cut")),
        "summary",
        "summary.json.egress",
    ),
    "the server's name": (
        summary(lambda value: value.update(server="assay-ffffffffffffffff")),
        "server",
        "summary.json says assay-ffffffffffffffff",
    ),
    "summary.md": (
        lambda run: run.text("summary.md", "0.667", "0.967"),
        "summary",
        "summary.md does not show what summary.json holds",
    ),
    "a reward in the traces": (
        traces(lambda episodes: first_trace(episodes)["rewards"]["answer_score"].update(score=0.5)),
        "samples",
        "samples.jsonl line 1",
    ),
    "an answer in the traces": (
        traces(lambda episodes: first_trace(episodes)["nodes"][-1]["message"].update(content="another")),
        "samples",
        "samples.jsonl line 1",
    ),
    "a prompt in the traces": (
        traces(lambda episodes: first_trace(episodes)["nodes"][1]["message"].update(content="easy")),
        "rows",
        "was asked with another prompt",
    ),
    "a row removed": (traces(lambda episodes: episodes.pop()), "samples", "samples.jsonl line 6"),
    "a row doubled": (
        traces(lambda episodes: episodes.append(episodes[0])),
        "rows",
        "task letter/0 has 2 rows, planned 1",
    ),
    "a row of a stranger": (
        traces(lambda episodes: episodes[0]["task"]["data"].update(id="letter/9")),
        "rows",
        "task letter/9 was not planned",
    ),
    "an error hidden": (
        traces(lambda episodes: episodes[0].update(ok=False)),
        "samples",
        "samples.jsonl line 1",
    ),
    "a temperature in the traces": (
        traces(lambda episodes: first_trace(episodes)["calls"][0]["sampling"].update(temperature=1.0)),
        "requests",
        "count/traces.jsonl line 1: temperature was 1.0, planned 0.0",
    ),
    "a model in the traces": (
        traces(lambda episodes: first_trace(episodes)["calls"][0].update(model="larger")),
        "requests",
        "count/traces.jsonl line 1: asked larger, planned toy-model",
    ),
    "a runtime in the traces": (
        traces(lambda episodes: first_trace(episodes)["agent"]["config"]["runtime"].update(type="docker")),
        "isolation",
        "count/traces.jsonl line 1: ran on docker, planned subprocess",
    ),
    "samples.jsonl": (
        lambda run: run.lines("samples.jsonl", lambda rows: rows[2].update(family="digit")),
        "samples",
        "samples.jsonl line 3",
    ),
    "rows missing though done": (
        traces(lambda episodes: episodes.pop()),
        "rows",
        "rows are missing though the run says done",
    ),
    "finished rollouts": (
        lambda run: run.json("state.json", lambda value: value["entries"][0].update(finished=5)),
        "state",
        "('count', 6, 5)",
    ),
    "the phase": (
        lambda run: run.json("state.json", lambda value: value.update(phase="cancelled")),
        "state",
        "state.json says cancelled, summary.json done",
    ),
    "resolved.json": (
        lambda run: run.json("resolved.json", lambda value: value.update(description="better")),
        "plan",
        "the directory's name",
    ),
    "egress in resolved.json": (
        lambda run: run.json("resolved.json", lambda value: value.update(egress="cut")),
        "plan",
        "egress is 'cut'",
    ),
    "egress in the environment": (
        lambda run: run.json("provenance/environment.json", lambda value: value.update(egress="cut")),
        "isolation",
        "provenance/environment.json: egress is cut, planned not enforced",
    ),
    "the task plan": (
        lambda run: run.json(
            "provenance/tasks/count.json", lambda value: value["tasks"][0].update(question_digest="0" * 64)
        ),
        "tasks",
        "provenance/tasks/count.json is not what the taskset describes",
    ),
    "a task left out of the plan": (
        lambda run: run.json("provenance/tasks/count.json", lambda value: value["tasks"].pop()),
        "rows",
        "count: provenance lists 5 tasks, the plan 6",
    ),
    "a baseline of the task plan": (
        lambda run: run.json(
            "provenance/tasks/count.json", lambda value: value["baselines"]["letter"].update(score=0.0)
        ),
        "tasks",
        "provenance/tasks/count.json",
    ),
    "an override": (
        lambda run: run.json(
            "provenance/launch/count/overrides.json", lambda value: value.update(sampling={"top_k": 1})
        ),
        "configuration",
        "overrides.json overrides more than is declared",
    ),
    "another address": (
        lambda run: run.json(
            "provenance/launch/count/overrides.json",
            lambda value: value["client"].update(base_url="http://models.example/v1"),
        ),
        "configuration",
        "asks http://models.example/v1, which is not planned",
    ),
    "the resolved native configuration": (
        lambda run: run.json(
            "count/configs/resolved/eval.json", lambda value: value["sampling"].update(temperature=0.7)
        ),
        "configuration",
        "eval.json.sampling.temperature: asked 0.0, resolved 0.7",
    ),
    "a launch file": (
        lambda run: run.text("provenance/launch/count/local.toml", "0.0", "0.5"),
        "plan",
        "provenance/launch/count/local.toml is not the text in resolved.json",
    ),
    "a pin's copy": (
        lambda run: run.text("provenance/pins/runtime/Dockerfile", "scratch", "other"),
        "pins",
        "provenance/pins/runtime/Dockerfile is not the file that was frozen",
    ),
    "a pin's copy left out": (
        lambda run: (run.run / "provenance/pins/build.lock").unlink(),
        "pins",
        "provenance/pins/build.lock is missing",
    ),
    "a pin with its frozen digest": (
        forged_pin,
        "checkout",
        "runtime/Dockerfile of this checkout is not the one the run froze",
    ),
    "a frozen tree": (
        every_input(lambda inputs: inputs.update({"tree:eval/assay": "0" * 64})),
        "checkout",
        "eval/assay/ of this checkout is not the one the run froze",
    ),
    "the frozen model": (
        every_input(lambda inputs: inputs.update({"model:toy-model": "0" * 64})),
        "pins",
        "model:toy-model was 000000",
    ),
    "a frozen input left out": (
        every_input(lambda inputs: inputs.pop("tree:eval/assay")),
        "checkout",
        "tree:eval/assay was not frozen",
    ),
    "a frozen input made up": (
        every_input(lambda inputs: inputs.update({"file:../../../../etc/hostname": "0" * 64})),
        "checkout",
        "file:../../../../etc/hostname was frozen, but is no input",
    ),
    "an input afterwards": (
        lambda run: run.json(
            "provenance/inputs.after-count.json",
            lambda value: value["inputs"].update({"tree:server": "0" * 64}),
        ),
        "inputs unchanged",
        "tree:server changed during count",
    ),
    "the server afterwards": (
        lambda run: run.json(
            "provenance/server/count.after.json",
            lambda value: value["identity"].update(system_fingerprint="assay-1"),
        ),
        "server",
        "the server changed during count",
    ),
    "a container of the run's own server": (
        lambda run: run.json(
            "provenance/server/count.after.json", lambda value: value.update(container={"id": "0" * 64})
        ),
        "container",
        'the server changed during count: container.id was null, is "0000',
    ),
    "a server that is told of in one half": (
        lambda run: (run.run / "provenance/server/count.after.json").unlink(),
        "container",
        "provenance/server/count.after.json is missing",
    ),
    "what was declared": (
        lambda run: run.json(
            "provenance/declared.json",
            lambda value: value.update(model_manifest={"file": [{"sha256": "0" * 64}]}),
        ),
        "server",
        "which the model manifest does not have",
    ),
    "the server's model": (
        lambda run: [
            run.json(
                f"provenance/server/count.{when}.json",
                lambda value: value["identity"]["model"].update(file_sha256="0" * 64),
            )
            for when in ("before", "after")
        ],
        "server",
        "the server claims the model 000000",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_under_a_manifest_made_again_is_found(toy: Toy, altered: Altered, name: str) -> None:
    change, check, said = CHANGES[name]
    change(altered)
    altered.reseal()
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert "files" not in answer["failed"], "the manifest was made again"
    assert said in evidence(answer, check)


def test_a_plan_renamed_to_fit_still_fails_where_it_was_launched(
    toy: Toy, altered: Altered, tmp_path: Path
) -> None:
    altered.json(
        "resolved.json",
        lambda value: value["entries"][0]["launch"].update(
            {"local.toml": value["entries"][0]["launch"]["local.toml"].replace("0.0", "0.5")}
        ),
    )
    altered.reseal()
    _, answer = audited(toy, altered.run)
    told = next(check for check in answer["checks"] if check["name"] == "plan")["evidence"][0]
    digest = told.split("digest ")[1][:8]
    moved = tmp_path / (altered.run.name[:-8] + digest)
    altered.run.rename(moved)
    code, answer = audited(toy, moved)
    assert code == 5
    assert "is not the text in resolved.json" in evidence(answer, "plan")
    assert "configuration" in answer["failed"]


def test_a_stranger_s_evaluator_is_not_run(toy: Toy, altered: Altered, tmp_path: Path) -> None:
    """The plan names programs of its own: an audit that followed it would run them."""
    evil = altered.run / "evil"
    (evil / ".venv/bin").mkdir(parents=True)
    (evil / "evaluator.toml").write_bytes((toy.root / "eval/evaluators/toy/evaluator.toml").read_bytes())
    proof = tmp_path / "it-ran"
    for name in ("python", "vf-eval"):
        (evil / ".venv/bin" / name).write_text(f"#!/bin/sh\ntouch {proof}\n")
        (evil / ".venv/bin" / name).chmod(0o755)
    up = "../" * len((toy.root / "eval/evaluators").parts)
    altered.json("resolved.json", lambda value: value.update(evaluator=f"{up}{str(evil).lstrip('/')}"))
    altered.reseal()
    code, _ = audited(toy, altered.run)
    assert code == 5
    assert not proof.exists()


def test_a_taskset_of_a_stranger_is_not_run(toy: Toy, altered: Altered) -> None:
    altered.text("resolved.json", "toy_tasks", "this")
    altered.reseal()
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert 'asks for the taskset "this"' in evidence(answer, "tasks")


def test_an_edited_checkout_is_named_and_the_commit_to_audit_with(toy: Toy, altered: Altered) -> None:
    path = toy.root / "models.lock"
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"\n")
        code, answer = audited(toy, altered.run)
    finally:
        path.write_bytes(before)
    assert code == 5
    assert answer["failed"] == ["checkout"]
    assert "models.lock of this checkout is not the one the run froze" in evidence(answer, "checkout")
    assert "git checkout" in evidence(answer, "checkout")


def test_without_the_evaluator_the_tasks_are_unknown_and_not_passed(
    toy: Toy, altered: Altered, tmp_path: Path
) -> None:
    path = toy.root / "eval/evaluators/toy/.venv"
    path.rename(tmp_path / "kept")
    try:
        code, answer = audited(toy, altered.run)
    finally:
        (tmp_path / "kept").rename(path)
    assert code == 0
    checks = {check["name"]: (check["verdict"], check["evidence"]) for check in answer["checks"]}
    assert checks["tasks"] == ("UNKNOWN", ["not set up: eval/scripts/setup toy"])
    verdict, said = checks["environments"]
    assert verdict == "UNKNOWN"
    assert all("eval/scripts/setup" in line for line in said)
