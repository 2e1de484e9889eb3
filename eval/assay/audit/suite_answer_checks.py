"""The answers that the gateway kept: are they as they were written, as many as are told, and what rows hold?

A row's answer must be one that a target gave: its digest is looked for among the kept answers of its job.
What was asked stands beside each answer, so model and sampling of every request are held against the suite.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.audit.check import Check
from assay.audit.suite_case import SuiteCase
from assay.coordinator.directory import ANSWERS, journal
from assay.coordinator.events import SET_ASIDE, read_events
from assay.coordinator.state import JobState
from assay.errors import AssayError
from assay.gateway.kept import Kept, kept_answers
from assay.gateway.reading import STREAM, read
from assay.suite.job import Job

NAME = "answers"
SHOWN = 5
THINKS = "<think>"
BFCL = "bfcl_v4"
# Options that every backend sends under OpenAI's own names.
OPTIONS = ("temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty")


@dataclass
class Sums:
    """What the kept answers of a job come to.

    Attributes:
        answers: How many.
        prompt_tokens: Of those that tell.
        completion_tokens: Of those that tell.
        texts: SHA-256 of each answered text.
        inside: Whether a model thought inside its text, which evaluators take apart.
        faults: What is odd about a request or its answer.
    """

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    texts: set[bytes] = field(default_factory=set)
    inside: bool = False
    faults: list[str] = field(default_factory=list)


def answers(case: SuiteCase) -> Check:
    """Every kept answer has its digest, and there are as many, of as many tokens, as the run tells of."""
    faults: list[str] = []
    said: list[str] = []
    gone: list[str] = []
    known = {path.name for path in (case.run / ANSWERS).glob("*")} if (case.run / ANSWERS).is_dir() else set()
    for job in case.suite.jobs:
        path = journal(case.run, job.id)
        state = case.state.job(job.id)
        known.discard(path.name)
        if not path.is_file():
            asked = case.asks(job) and case.begun(job)
            if (asked or state.spent.requests > state.spent.errors) and _whole(case, job):
                faults.append(f"{job.id}: {state.spent.requests} requests were made, and no answer was kept")
            elif state.spent.requests:
                gone.append(f"{job.id}: its {state.spent.requests} answers were not kept")
            continue
        try:
            found = _read(case, job)
        except AssayError as error:
            faults.append(f"{error.what}: {error.why}".replace(f"{case.run}/", ""))
            continue
        faults += [f"{job.id}: {each}" for each in found.faults[:SHOWN]]
        faults += [f"{job.id}: {each}" for each in _against(case, job, state, found)]
        faults += _answered(case, job, found)
        said.append(f"{job.id}: {found.answers} of {state.spent.requests} requests")
    aside = {str(row.get("file")) for row in read_events(case.run) if row.get("kind") == SET_ASIDE}
    known = {f"{ANSWERS}/{name}" for name in known}
    faults += [f"{name} belongs to no job, and no event set it aside" for name in sorted(known - aside)]
    faults += [f"{name} was set aside, and is missing" for name in sorted(aside - known)]
    if faults:
        return Check(NAME, "FAIL", tuple(faults))
    if gone:
        return Check(NAME, "UNKNOWN", (*gone, *said))
    return Check(NAME, "PASS", tuple(said) or ("nobody was asked",))


def _whole(case: SuiteCase, job: Job) -> bool:
    """Whether nothing of a job's answers was to be removed or set aside."""
    aside = list((case.run / ANSWERS).glob(f"{job.id}.not-used-*.jsonl"))
    return case.suite.running.retention == "all" and not aside


def _read(case: SuiteCase, job: Job) -> Sums:
    sums = Sums()
    for kept in kept_answers(journal(case.run, job.id)):
        sums.answers += 1
        sums.prompt_tokens += kept.answer.prompt_tokens or 0
        sums.completion_tokens += kept.answer.completion_tokens or 0
        for text in texts(kept):
            sums.inside = sums.inside or THINKS in text
            sums.texts.add(hashlib.sha256(text.encode("utf-8", "replace")).digest())
        odd = [*_asked(case, job, kept), *_counted(kept)]
        sums.faults += [f"answer {kept.number}: {each}" for each in odd]
    return sums


def texts(kept: Kept) -> list[str]:
    """The visible text of each choice of a chat answer, streamed ones put together."""
    said: dict[int, list[str]] = {}
    for value in _values(kept):
        for choice in value.get("choices") or []:
            message = choice.get("message") or choice.get("delta") or {}
            said.setdefault(int(choice.get("index") or 0), []).append(str(message.get("content") or ""))
    return ["".join(said[index]) for index in sorted(said)]


def _values(kept: Kept) -> Iterator[Mapping[str, Any]]:
    """The objects of an answer's body: one, or those of a stream's events."""
    body = kept.answer.body
    events = [body]
    if kept.answer.headers.get("content-type", "").lower().startswith(STREAM):
        events = [line.removeprefix(b"data:") for line in body.split(b"\n") if line.startswith(b"data:")]
    for event in events:
        try:
            value = json.loads(event)
        except (ValueError, RecursionError):
            continue  # the end of a stream is no JSON
        if isinstance(value, Mapping):
            yield value


def _counted(kept: Kept) -> Iterator[str]:
    """Whether the counts are those that the answer's own body tells."""
    if not kept.answer.good:
        return
    told = read(kept.answer.headers.get("content-type", ""), kept.answer.body)
    for name in ("prompt_tokens", "completion_tokens"):
        if getattr(told, name) != getattr(kept.answer, name):
            yield f"its body tells {getattr(told, name)} {name}, its line {getattr(kept.answer, name)}"


def _asked(case: SuiteCase, job: Job, kept: Kept) -> Iterator[str]:
    """What of a request is not as the suite says."""
    target = case.suite.target(job)
    try:
        body = json.loads(kept.request.body)
    except ValueError:
        yield "its request is no JSON"
        return
    if not isinstance(body, Mapping):
        yield "its request is no object"
        return
    wanted = target.model or target.serve
    if "model" in body and body["model"] != wanted:
        yield f"it asked for the model {body['model']!r}, planned is {wanted!r}"
    if job.backend == "verifiers" or "messages" not in body:
        return  # whose own configuration decides, and whose run is audited by itself
    for name in OPTIONS:
        value = getattr(job.generation, name)
        sent = body.get(name, body.get("max_completion_tokens") if name == "max_tokens" else None)
        if value is not None and sent != value:
            yield f"{name} was {sent!r}, planned {value!r}"
    for name, value in job.generation.extra_body.items():
        if body.get(name) != value:
            yield f"{name} was {body.get(name)!r}, planned {value!r}"


def _against(case: SuiteCase, job: Job, state: JobState, found: Sums) -> list[str]:
    """How what was kept differs from what the state tells of it.

    A job whose one child ended by itself has an answer for each request that did not fail. A child that was
    ended may have left requests behind, and a run that was killed may tell of answers that it could not keep.
    """
    spent, ended = state.spent, state.ended
    quiet = state.attempt == 1 and ended is not None and (ended.why, ended.code) == ("exit", 0)
    quiet = quiet and _whole(case, job)
    least = spent.requests - spent.errors if quiet else 0
    faults = []
    if not least <= found.answers <= spent.requests:
        faults.append(
            f"{found.answers} answers were kept, of {spent.requests} requests with {spent.errors} errors"
        )
    for name in ("prompt_tokens", "completion_tokens"):
        told, kept = getattr(spent, name), getattr(found, name)
        if told < kept or (quiet and told != kept):
            faults.append(f"{name}: state.json tells {told}, the kept answers {kept}")
    return faults


def _answered(case: SuiteCase, job: Job, found: Sums) -> list[str]:
    """Rows whose answer no target gave."""
    if job.dataset == BFCL or found.inside or not case.asks(job) or not _whole(case, job):
        return []  # BFCL records what it made of an answer, and not its text
    faults: list[str] = []
    for number, row in enumerate(case.rows(job), start=1):
        if row.status not in ("scored", "truncated") or row.answer_digest is None:
            continue
        if bytes.fromhex(row.answer_digest) not in found.texts and len(faults) < SHOWN:
            faults.append(f"{job.id}: row {number} holds an answer that is not among the kept ones")
    return faults
