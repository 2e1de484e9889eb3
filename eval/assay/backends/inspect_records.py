"""What Inspect's child leaves, read into rows: planned tasks in order, what never ended told as missing.

`planned.jsonl` has a line a task, `samples.jsonl` a line a sample that ended, in Inspect's own form, and
`end.json` the heads of Inspect's logs, one for each seed. Lines are read where they are needed, so that a
long record need not fit into memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.backends.base import Context
from assay.backends.inspect_arguments import READING, Arguments
from assay.errors import VerificationError
from assay.files import read_json
from assay.record.native import (
    ERROR_CHARACTERS,
    answer_digest,
    finite,
    is_empty,
    output_digest,
    prompt_digest,
    read_objects,
)
from assay.record.sample import NEVER, Sample, Seconds, Status
from assay.suite.job import Job

PLANNED = "planned.jsonl"
SAMPLES = "samples.jsonl"
END = "end.json"
FINISH = {"max_tokens": "length"}
CUT = frozenset({"max_tokens", "model_length"})
CHAINED = "\nThe above exception was the direct cause of the following exception:\n"
USAGE_IN = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")


@dataclass
class Record:
    """The records of one attempt.

    Attributes:
        folder: The attempt's folder.
        planned: The tasks, in order: id, digest of the question, kept columns.
        places: Number and offset of the line of each sample that ended, by task and rollout.
        logs: The heads of Inspect's logs; None when the child came to no end.
        refused: Why the child asked nothing.
        problems: What is wrong with the records.
    """

    folder: Path
    planned: list[Mapping[str, Any]] = field(default_factory=list)
    places: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    logs: Sequence[Mapping[str, Any]] | None = None
    refused: str | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def scores(self) -> list[Mapping[str, Any]]:
        """What Inspect computed of each score, in order, where there is one log of it."""
        if self.logs is None or len(self.logs) != 1:
            return []
        found = (self.logs[0].get("results") or {}).get("scores") or []
        return [score for score in found if isinstance(score, dict)]


def load(folder: Path) -> Record:
    """Read what an attempt left; what cannot be read becomes a problem."""
    record = Record(folder)
    try:
        record.planned = [value for _, value in read_objects(folder / PLANNED) if "id" in value]
    except (VerificationError, OSError) as error:
        record.problems.append(str(error))
    try:
        end = read_json(folder / END)
        record.logs, record.refused = list(end["logs"]), end["refused"]
    except (OSError, ValueError, LookupError, TypeError):
        record.logs = None
    known = {str(task["id"]) for task in record.planned}
    for number, offset, found in _lines(folder / SAMPLES):
        if found is None:
            record.problems.append(f"{SAMPLES} line {number} cannot be read")
        elif found[0] not in known:
            record.problems.append(f"{SAMPLES} line {number}: task {found[0]} was not planned")
        elif found in record.places:
            record.problems.append(
                f"{SAMPLES} line {number}: rollout {found[1]} of task {found[0]} once more"
            )
        else:
            record.places[found] = (number, offset)
    return record


def _lines(path: Path) -> Iterator[tuple[int, int, tuple[str, int] | None]]:
    """Number, offset, and task and rollout of every whole line; None for one that is no sample."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        offset = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            yield number, offset, _named(line)
            offset += len(line)


def _named(line: bytes) -> tuple[str, int] | None:
    try:
        value = json.loads(line)
        return str(value["sample"]["id"]), int(value["rollout"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def rows(context: Context, arguments: Arguments, record: Record, primary: str) -> Iterator[Sample]:
    """One row for each planned rollout, rollouts of a task beside each other."""
    path = record.folder / SAMPLES
    told = path.relative_to(context.run).as_posix()
    try:
        file = path.open("rb")
    except OSError:
        file = None
    try:
        for task in record.planned:
            for rollout in range(context.job.repeats):
                place = record.places.get((str(task["id"]), rollout))
                value: Mapping[str, Any] | None = None
                if file is not None and place is not None:
                    file.seek(place[1])
                    value = json.loads(file.readline())
                yield _row(context, arguments, task, rollout, primary, value, told, place and place[0])
    finally:
        if file is not None:
            file.close()


def _row(
    context: Context,
    arguments: Arguments,
    task: Mapping[str, Any],
    rollout: int,
    primary: str,
    value: Mapping[str, Any] | None,
    told: str,
    line: int | None,
) -> Sample:
    job = context.job
    kept = task.get("metadata") or {}
    family = kept.get(arguments.family, job.dataset) if arguments.family else job.dataset
    try:
        found = {} if value is None else _found(value, primary)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        found = {"status": "errored", "error": f"the record cannot be read: {type(error).__name__}: {error}"}
    common = {
        "entry": job.id,
        "task_key": str(task["id"]),
        "rollout": rollout,
        "seed": seed_of(job, rollout),
        "family": str(family),
        "cluster": str(task.get("question")),
        "record": None if value is None else told,
        "line": line,
    }
    return Sample.model_validate({**NEVER, **found, **common})


def seed_of(job: Job, rollout: int) -> int | None:
    """The seed of a rollout's requests: each repeat of a sampled job has its own, from the job's on."""
    seed = job.generation.seed
    return seed if seed is None or not job.generation.sampled else seed + rollout


def _found(value: Mapping[str, Any], primary: str) -> dict[str, Any]:
    """What the line of a sample says."""
    sample, numbers = value["sample"], value["numbers"]
    messages = [_message(message) for message in sample["messages"]]
    first = next((at for at, message in enumerate(messages) if message["generated"]), None)
    generated = [message for message in messages if message["generated"]]
    choices = sample["output"].get("choices") or []
    stopped = choices[-1].get("stop_reason") if choices else None
    limit = (sample.get("limit") or {}).get("type")
    scores = {name: finite(number, name) for name, number in numbers.items()}
    failure = _failure(sample, scores, primary)
    status: Status = "errored" if failure else "truncated" if limit or stopped in CUT else "scored"
    usage = list((sample.get("model_usage") or {}).values())
    retried = len(sample.get("error_retries") or [])
    return {
        "prompt_digest": None if first is None else prompt_digest(messages[:first]),
        "answer_digest": answer_digest(generated),
        "output_digest": output_digest(generated),
        "reward": None if failure else scores[primary],
        "rewards": {} if failure else scores,
        "status": status,
        "error": failure,
        "empty": failure is None and is_empty(generated),
        "thinking": any(message["reasoning_content"] for message in generated) if generated else None,
        "unparsed": None if failure else _unparsed(sample, primary),
        "finish_reason": FINISH.get(str(stopped), stopped),
        "stop_condition": limit,
        "prompt_tokens": sum(int(one.get(n) or 0) for one in usage for n in USAGE_IN) if usage else None,
        "completion_tokens": sum(int(one.get("output_tokens") or 0) for one in usage) if usage else None,
        "turns": len(generated),
        "attempts": len(generated) + retried + (1 if failure and not generated else 0),
        "seconds": Seconds(total_s=sample.get("total_time")),
    }


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of Inspect's in the words that digests are taken over."""
    content = message.get("content") or ""
    parts = [] if isinstance(content, str) else content
    calls = [
        {"name": call.get("function"), "arguments": call.get("arguments")}
        for call in message.get("tool_calls") or []
    ]
    return {
        "role": message["role"],
        "content": content if isinstance(content, str) else [p for p in parts if p.get("type") == "text"],
        "reasoning_content": "".join(str(p.get("reasoning") or "") for p in parts),
        "tool_calls": calls,
        "generated": message["role"] == "assistant" and message.get("source") == "generate",
    }


def _failure(sample: Mapping[str, Any], scores: Mapping[str, float], primary: str) -> str | None:
    """Why the sample has no score; None when it has one."""
    error = sample.get("error")
    if error:
        said = str(error.get("message", ""))
        # A request that failed is wrapped once more by the loop around it.
        before = str(error.get("traceback", "")).partition(CHAINED)
        cause = before[0].strip().splitlines()[-1:] if before[1] and said.startswith("RetryError") else []
        return (cause[0] if cause else said)[:ERROR_CHARACTERS] or "the evaluator gives no reason"
    if primary not in scores:
        others = f"; it has {', '.join(sorted(scores))}" if scores else ""
        return f"the sample has no score {primary!r}{others}"
    return None


def _unparsed(sample: Mapping[str, Any], primary: str) -> bool | None:
    """Whether the scorer found no answer in the text, where it is one that reads answers out of texts."""
    if primary not in READING:
        return None
    return not (sample["scores"][primary].get("answer") or "").strip()


def reported(record: Record) -> dict[str, float]:
    """The metrics that Inspect computed itself, by `score/metric`."""
    found = {}
    for score in record.scores:
        for name, metric in (score.get("metrics") or {}).items():
            value = metric.get("value") if isinstance(metric, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[f"{score.get('name')}/{name}"] = float(value)
    return found
