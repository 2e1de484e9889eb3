"""`results.jsonl` of Verifiers 0.1.15 (`vf-eval` of that time): one flat line a rollout.

The command puts it into a folder whose name it draws, so it is found by its place. A failed rollout has an
`error` and a reward of 0 there; its stop condition is `max_turns_reached` for every single-turn rollout that
went well, so that only `is_truncated` tells a cut one. What the last call's finish reason was is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import VerificationError
from assay.record.native import (
    ERROR_CHARACTERS,
    Row,
    answer_digest,
    finite,
    has_thought,
    is_empty,
    output_digest,
    prompt_digest,
    read_objects,
    seconds,
    span,
)

RESULTS = "results.jsonl"
METADATA = "metadata.json"
PLACE = f"evals/*/*/{RESULTS}"
OWN_METRICS = frozenset({"num_turns"})
STAGES = {"setup": "setup", "agent": "generation", "scoring": "scoring"}


class ResultsReader:
    """Reads the records of this dialect."""

    def record(self, folder: Path) -> Path:
        """The record of one native invocation; where it would be when there is none yet.

        Raises:
            VerificationError: the folder holds two.
        """
        found = sorted(folder.glob(PLACE))
        if len(found) > 1:
            raise VerificationError(
                f"{folder} holds {len(found)} records of one invocation",
                ", ".join(path.parent.name for path in found),
            )
        return found[0] if found else folder / RESULTS

    def rows(self, folder: Path) -> Iterator[Row]:
        """Every whole line; VerificationError where one cannot be read."""
        path = self.record(folder)
        for number, value in read_objects(path):
            try:
                yield _row(number, value)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
                raise VerificationError(
                    f"{path} line {number}, cannot be read", f"{type(error).__name__}: {error}"
                ) from error


def _row(line: int, value: Mapping[str, Any]) -> Row:
    example = value["example_id"]
    if isinstance(example, bool) or not isinstance(example, int | str) or example == "":
        raise ValueError(f"example_id is {example!r}")
    failed = value.get("error")
    metrics = value.get("metrics") or {}
    timing = value.get("timing") or {}
    usage = value.get("token_usage") or {}
    generated = [message for message in value.get("completion") or [] if message["role"] == "assistant"]
    turns = metrics.get("num_turns")
    return Row(
        line=line,
        key=str(example),
        ok=failed is None and value["is_completed"] is True,
        error=_reason(value),
        truncated=value["is_truncated"] is True,
        stop_condition=value.get("stop_condition"),
        rewards={
            name: finite(score, name)
            for name, score in metrics.items()
            if name not in OWN_METRICS and score is not None
        },
        reward=finite(value["reward"], "the reward"),
        prompt_digest=prompt_digest(value["prompt"]) if value.get("prompt") else None,
        answer_digest=answer_digest(generated),
        empty=is_empty(generated),
        thinking=has_thought(generated),
        output_digest=output_digest(generated),
        prompt_tokens=_count(usage.get("input_tokens")),
        completion_tokens=_count(usage.get("output_tokens")),
        turns=_count(turns),
        attempts=len((timing.get("model") or {}).get("spans") or []),
        seconds=seconds({name: span(timing, there) for name, there in STAGES.items()}),
    )


def _reason(value: Mapping[str, Any]) -> str | None:
    failed = value.get("error")
    if failed is None:
        return None if value["is_completed"] is True else "the evaluator did not complete it"
    return str(failed["error_chain_repr"])[:ERROR_CHARACTERS]


def _count(found: Any) -> int | None:
    return None if found is None else int(finite(found, "a count"))
