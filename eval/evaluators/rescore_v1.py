"""Saved answers scored once more by Verifiers 0.3 or 0.4: `python -P offline.py rescore_v1.py JOB.json`.

It runs in an evaluator's own environment. Scored is by upstream's own replay, which clears what a trace was
given and computes what the transcript decides. Its command cannot be used as it stands: it makes the
taskset's configuration of nothing first, so that a taskset with an option that must be given is refused. What
replay leaves out because it has no sandbox is scored in one that is made as a rollout's is, with the task's
own set-up and with the network cut, where the job names a runtime.

A trace's task is scored as its record has it, the right answer among its data, so each is first held against
the digest that the taskset gives its task; one that differs is not scored.

The job: `record` (a `traces.jsonl`), `taskset` (the table of that name), `hashes` (the digest of each task's
data by its key, or null: the taskset is asked), `runtime` (a table, or null), `concurrent`, `out` (a folder).
Left there: `scored/traces.jsonl`, the replay's, and `said.json`: what could not be computed for want of what
(`needs`), and the ids of traces whose task's data are others than the taskset's (`forged`), or cannot be read
(`unread`).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import verifiers.v1 as vf
from verifiers.v1.cli import replay
from verifiers.v1.cli.output import write_config
from verifiers.v1.configs.cli.replay import ReplayConfig
from verifiers.v1.runtimes import DockerConfig, provision_runtime
from verifiers.v1.task import task_key
from verifiers.v1.utils.decorators import invoke
from verifiers.v1.utils.loaders import load_taskset

Scoring = Callable[..., Any]


class Need(NamedTuple):
    """What a signal needs beside the transcript, and whether a sandbox is that."""

    what: str
    sandbox: bool


def main(path: str) -> None:
    """Score the job's traces."""
    job = json.loads(Path(path).read_text("utf-8"))
    out = Path(job["out"])
    config = ReplayConfig.model_validate(
        {"taskset": job["taskset"], "max_concurrent": job["concurrent"], "rich": False}
    )
    task = vf.task_type(config.taskset.id)
    lacking = needs(task(task.data_type().model_construct(), config=config.taskset.task))
    if job["runtime"] is not None:
        vf.Task.score = in_sandbox(vf.Task.score, DockerConfig.model_validate(job["runtime"]))
        lacking = [need for need in lacking if not need.sandbox]
    source = out / "source"
    # Replay reads beside the traces what kind of run it was.
    write_config(config, source)
    hashes = job["hashes"] or {each.key: each.hash for each in load_taskset(config.taskset)}
    forged, unread = copy(Path(job["record"]), source / "traces.jsonl", task.data_type(), hashes)
    if not lacking:
        asyncio.run(replay.run_replay(config, source, out / "scored"))
    said = {"needs": [need.what for need in lacking], "forged": forged, "unread": unread}
    (out / "said.json").write_text(json.dumps(said), "utf-8")


def copy(record: Path, into: Path, data: Any, hashes: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Copy traces with their tasks' data as the taskset wants them; the ids of forged and of unread ones.

    A field that is None is left out where traces are written, also one that must be given.
    """
    required = [name for name, field in data.model_fields.items() if field.is_required()]
    forged, unread = [], []
    with record.open("rb") as lines, into.open("w", encoding="utf-8") as copied:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            episode = json.loads(line)
            wanted = hashes.get(episode["task"]["key"])
            own = [trace for trace in episode["traces"] if task_key(trace["task"]["data"]) == wanted]
            forged += [trace["id"] for trace in episode["traces"] if trace not in own]
            for trace in own:
                found = trace["task"]["data"] = dict.fromkeys(required) | trace["task"]["data"]
                try:
                    data.model_validate(found)
                except ValueError:
                    unread.append(trace["id"])
            copied.write(json.dumps({**episode, "traces": own}) + "\n")
    return forged, unread


def needs(task: Any) -> list[Need]:
    """The signals of a task that its transcript does not decide."""
    found = [Need(f"the judge {judge.reward_name} asks a model", False) for judge in task.plugged_judges()]
    for hook in (*task.hooks("reward"), *task.hooks("metric")):
        parameter = inspect.signature(hook).parameters.get("runtime")
        if parameter is not None and parameter.default is inspect.Parameter.empty:
            found.append(Need(f"{hook.__name__} runs in a sandbox", True))
    return found


def in_sandbox(score: Scoring, config: Any) -> Scoring:
    """Scoring of a task's trace in a sandbox of its own, made ready and cut off as a rollout's is."""

    async def scored(task: Any, trace: Any, runtime: Any = None) -> None:
        async with provision_runtime(config, name=trace.id, env=dict(task.runtime_env())) as made:
            await made.prepare_setup()
            await invoke(task.setup, {"trace": trace, "runtime": made})
            await made.prepare_execution([])
            await score(task, trace, made)

    return scored


if __name__ == "__main__":
    main(sys.argv[1])
