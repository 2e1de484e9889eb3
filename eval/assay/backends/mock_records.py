"""What the mock's child leaves, read into rows: in order, one at a time, what never happened as missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.backends import mock_child
from assay.backends.base import Context
from assay.digest import sha256_bytes, value_digest
from assay.record.sample import Sample, Seconds, Status

PRIMARY = "right"


class Record(BaseModel):
    """A line of the child's records.

    Attributes:
        item: From 0.
        rollout: From 0.
        right: Whether the answer counts.
        seconds: Wall time of it.
        text: The answer; None when there is none.
        thought: What the model thought, where the server tells it apart.
        finish: Why the answer ended.
        sent: Tokens of the prompt.
        made: Tokens of the answer.
        error: Why there is no answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    item: int = Field(ge=0)
    rollout: int = Field(ge=0)
    right: bool
    seconds: float
    text: str | None = None
    thought: str | None = None
    finish: str | None = None
    sent: int | None = None
    made: int | None = None
    error: str | None = None


class Final(BaseModel):
    """`ended.json`: how many rollouts have a line, and what ended the child early."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rollouts: int
    error: str | None


def read_final(path: Path) -> Final | None:
    """How the child says that it ended; None when it does not say."""
    try:
        return Final.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def rows(context: Context, planned: int | None) -> Iterator[Sample]:
    """One row for each planned rollout, in order; those that a worker finished early wait for their turn.

    Args:
        context: The job.
        planned: Rollouts; None where only those are known that have ended.
    """
    repeats = context.job.repeats
    path = context.folder / mock_child.RECORDS
    relative = path.relative_to(context.run).as_posix()
    early: dict[int, tuple[int, Record]] = {}
    turn = 0
    for line, record in read_records(path):
        position = record.item * repeats + record.rollout
        if position < turn or record.rollout >= repeats or (planned is not None and position >= planned):
            continue
        early[position] = (line, record)
        while turn in early:
            yield row(context, relative, turn, early.pop(turn))
            turn += 1
    last = planned if planned is not None else max(early, default=-1) + 1
    for position in range(turn, last):
        found = early.pop(position, None)
        if found is not None or planned is not None:
            yield row(context, relative, position, found)


def read_records(path: Path) -> Iterator[tuple[int, Record]]:
    """The records with the numbers of their lines; a torn or strange line is none."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield number, Record.model_validate_json(line)
                except ValidationError:
                    continue
    except OSError:
        return


def row(context: Context, records: str, position: int, found: tuple[int, Record] | None) -> Sample:
    """A rollout's row, also of one that never happened."""
    job = context.job
    item, rollout = divmod(position, job.repeats)
    line, record = found if found is not None else (None, None)
    question = mock_child.prompt(item)
    digest = value_digest([{"role": "user", "content": question}])
    text = record.text if record is not None else None
    status: Status = "scored"
    if record is None:
        status = "missing"
    elif record.error is not None or text is None:
        status = "errored"
    elif record.finish == "length":
        status = "truncated"
    score = float(record.right) if record is not None and status in ("scored", "truncated") else None
    seed = (job.generation.seed or 0) + rollout if job.generation.sampled else job.generation.seed
    return Sample(
        entry=job.id,
        task_key=str(item),
        rollout=rollout,
        seed=seed,
        family=job.dataset,
        cluster=sha256_bytes(question.encode("utf-8")),
        prompt_digest=digest,
        answer_digest=None if text is None else sha256_bytes(text.encode("utf-8")),
        output_digest=None if record is None or text is None else value_digest([record.thought, text]),
        reward=score,
        rewards={} if score is None else {PRIMARY: score},
        status=status,
        error=(record.error or "the record has no answer")
        if record is not None and status == "errored"
        else None,
        empty=text is not None and not text.strip(),
        thinking=None if record is None or text is None else bool((record.thought or "").strip()),
        finish_reason=record.finish if record is not None else None,
        stop_condition=None,
        prompt_tokens=record.sent if record is not None else None,
        completion_tokens=record.made if record is not None else None,
        turns=None if text is None else 1,
        attempts=0 if record is None else 1,
        seconds=Seconds(total_s=record.seconds if record is not None else None),
        record=None if line is None else records,
        line=line,
    )
