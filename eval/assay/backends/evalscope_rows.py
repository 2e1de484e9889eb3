"""Rows of EvalScope's samples: one for each that was planned, in the order in which they were planned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.backends import evalscope_records as records
from assay.backends.evalscope_benchmarks import BENCHMARKS, BFCL, NEEDLE
from assay.backends.evalscope_records import Lines, Record, Task
from assay.digest import sha256_bytes
from assay.record.native import (
    ERROR_CHARACTERS,
    answer_digest,
    finite,
    has_thought,
    is_empty,
    output_digest,
)
from assay.record.sample import NEVER, Sample, Seconds
from assay.suite.job import Job

# EvalScope's word for a finish reason, where the protocol has another.
FINISH = {"max_tokens": "length", "unknown": None}
# The answer was cut: by the limit of tokens, or because prompt and answer did not fit the context.
CUT = ("length", "model_length")
# How EvalScope marks a score of 0 that its scorer gave because it failed.
SCORER_FAILED = ("error:", "grading_error:")
# What BFCL calls an answer in which it found no call, or no text.
UNDECODED = ("ast_decoder:", "agentic:no_last_message")


@dataclass(frozen=True)
class Source:
    """Where a job's records are, and what its rows say of themselves.

    Attributes:
        job: The job.
        folder: Of the attempt.
        run: Paths in rows are relative to it.
        primary: The metric that counts.
    """

    job: Job
    folder: Path
    run: Path
    primary: str

    @property
    def dataset(self) -> str:
        """EvalScope's name of the benchmark."""
        return self.job.dataset

    def name(self, path: Path) -> str:
        """A file's path, as rows tell it."""
        return path.relative_to(self.run).as_posix()


def rows(source: Source, record: Record) -> Iterator[Sample]:
    """A row for each planned sample."""
    tasks = record.tasks or []
    several = len(records.subsets(tasks)) > 1
    subset, answered, scored = "", Lines(source.folder / ""), Lines(source.folder / "")
    for task in tasks:
        if task.subset != subset:
            subset = task.subset
            answered = records.predictions(source.folder, source.dataset, subset)
            scored = records.reviews(source.folder, source.dataset, subset)
        family = task.family if several or task.family != subset else source.dataset
        row = {**_blank(source, task, family), **_told(source, record, task, answered, scored)}
        yield Sample.model_validate(row)


def _blank(source: Source, task: Task, family: str) -> dict[str, Any]:
    """The row of a sample of which nothing but the plan is known."""
    return {
        **NEVER,
        "entry": source.job.id,
        "task_key": f"{task.subset}/{task.group}",
        "rollout": task.rollout,
        "seed": seed_of(source.job, task.rollout),
        "family": family,
        "cluster": task.question,
        "prompt_digest": task.prompt,
    }


def seed_of(job: Job, rollout: int) -> int | None:
    """The seed of a rollout's requests: each repeat of a sampled job has its own, from the job's on."""
    seed = job.generation.seed
    return seed if seed is None or not job.generation.sampled else seed + rollout


def _told(source: Source, record: Record, task: Task, answered: Lines, scored: Lines) -> dict[str, Any]:
    """What the records tell of a sample."""
    failure = record.failures.get(task.place)
    if task.index not in answered:
        if failure is None:
            return {}
        place = {"record": source.name(source.folder / records.FAILURES), "line": failure.line}
        return {"status": "errored", "error": failure.error, "attempts": 1, **place}
    place = {"record": source.name(answered.path), "line": None}
    try:
        found, review = answered.read(task.index), scored.read(task.index)
        if found is None:
            raise ValueError("the line is gone")
        place["line"] = found[0]
        told = _bfcl(found[1], record.calls.get(task.place)) if source.dataset == BFCL else _chat(found[1])
        told |= _score(source, review[1] if review is not None else None, told)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"its record cannot be read: {type(error).__name__}: {error}"
        return {"status": "errored", "error": reason[:ERROR_CHARACTERS], "attempts": 1, **place}
    unprepared = record.unprepared.get((task.subset, str(task.scenario)))
    if unprepared is not None:
        told |= {"status": "errored", "reward": None, "rewards": {}}
        told["error"] = f"the memory it is asked about could not be prepared: {unprepared}"
    return {**told, **place}


def _chat(prediction: Mapping[str, Any]) -> dict[str, Any]:
    """What the model said, of a sample that was one request."""
    output = prediction["model_output"]
    choice, usage = output["choices"][0], output.get("usage") or {}
    message = _message(choice["message"])
    finish = choice.get("stop_reason")
    finish = FINISH.get(str(finish), finish)
    overflowed = finish == "model_length"
    thought = has_thought([message]) or bool(usage.get("reasoning_tokens"))
    return {
        # What stands for an answer to a prompt that was too long is the server's refusal.
        "answer_digest": None if overflowed else answer_digest([message]),
        "output_digest": None if overflowed else output_digest([message]),
        "empty": overflowed or is_empty([message]),
        "thinking": None if overflowed else thought,
        "finish_reason": finish,
        "prompt_tokens": _count(usage.get("input_tokens")),
        "completion_tokens": _count(usage.get("output_tokens")),
        "turns": 1,
        "attempts": 1,
        "seconds": _seconds(output.get("time")),
    }


def _bfcl(prediction: Mapping[str, Any], calls: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """What the model said, of an entry of BFCL, whose record is what BFCL made of one answer or several."""
    output = prediction["model_output"]
    content = output["choices"][0]["message"]["content"]
    if not isinstance(content, str):
        raise TypeError("the content is no text")
    said = json.loads(content)
    if isinstance(said, dict) and {"error", "error_message"} <= said.keys():
        # What BFCL makes of a failure of its own; it is no answer of the model's.
        raise ValueError(f"BFCL failed: {said['error']}")
    asked = calls or []
    last = asked[-1] if asked else {}
    sent = [_count(call.get("prompt_tokens")) for call in asked]
    made = [_count(call.get("completion_tokens")) for call in asked]
    return {
        "answer_digest": sha256_bytes(content.encode("utf-8", "surrogatepass")),
        "output_digest": sha256_bytes(content.encode("utf-8", "surrogatepass")),
        "empty": _nothing(said),
        "thinking": any(bool(call.get("thought")) for call in asked) if asked else None,
        "finish_reason": last.get("finish_reason"),
        # Each call sends what the calls before it sent and got: the longest holds all of it once.
        "prompt_tokens": max((count for count in sent if count is not None), default=None),
        "completion_tokens": sum(count for count in made if count is not None) if asked else None,
        "turns": len(asked) or None,
        "attempts": max(1, len(asked)),
        "seconds": _seconds(output.get("time")),
    }


def _nothing(said: Any) -> bool:
    """Whether what BFCL recorded holds neither a text nor a call, in any turn."""
    if isinstance(said, list):
        return all(_nothing(each) for each in said)
    return not said.strip() if isinstance(said, str) else not said


def _score(source: Source, review: Mapping[str, Any] | None, told: Mapping[str, Any]) -> dict[str, Any]:
    """How the answer was scored, and what the row's status is."""
    if review is None:
        return {"status": "errored", "error": "it was answered, and not scored"}
    score = review["sample_score"]["score"]
    failed = _scorer_failed(score.get("metadata") or {})
    if failed is not None:
        return {"status": "errored", "error": f"the scorer failed: {failed}"[:ERROR_CHARACTERS]}
    rewards = {
        # Needle-in-a-Haystack names the metric after the length and the depth.
        ("acc" if source.dataset == NEEDLE else str(name)): finite(
            float(value) if isinstance(value, bool) else value, str(name)
        )
        for name, value in score["value"].items()
    }
    if source.primary not in rewards:
        return {"status": "errored", "error": f"the scorer gave no {source.primary}"}
    cut = told["finish_reason"] in CUT
    return {
        "status": "truncated" if cut else "scored",
        "reward": rewards[source.primary],
        "rewards": rewards,
        "unparsed": _unparsed(source, score, told),
    }


def _scorer_failed(metadata: Mapping[str, Any]) -> str | None:
    said = [value for value in metadata.values() if isinstance(value, str)]
    return next((value for value in said if value.startswith(SCORER_FAILED)), None)


def _unparsed(source: Source, score: Mapping[str, Any], told: Mapping[str, Any]) -> bool | None:
    """Whether the scorer found no answer in a text; None where its records do not tell."""
    if told["empty"]:
        return False
    if source.dataset == BFCL:
        kind = str((score.get("metadata") or {}).get("error_type"))
        return kind.startswith(UNDECODED)
    known = BENCHMARKS.get(source.dataset)
    if known is not None and not known.reads:
        return False
    extracted = score.get("extracted_prediction")
    if known is None and extracted == score.get("prediction"):
        return None
    return extracted is None or not str(extracted).strip()


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of EvalScope's in the form that evaluators' records share."""
    content = message.get("content") or ""
    thought = ""
    if not isinstance(content, str):
        thought = "".join(str(part.get("reasoning") or "") for part in content if part["type"] == "reasoning")
        content = "".join(str(part.get("text") or "") for part in content if part["type"] == "text")
    return {
        "role": "assistant",
        "content": content,
        "reasoning_content": thought,
        "tool_calls": message.get("tool_calls") or [],
    }


def _count(value: Any) -> int | None:
    return None if value is None else int(finite(value, "a count"))


def _seconds(value: Any) -> Seconds:
    return Seconds() if value is None else Seconds(total_s=round(finite(value, "the time"), 4))
