"""The backend `inspect`: Inspect AI over a local file, or an inspect-evals task over local copies of data.

One child a job (`eval/evaluators/inspect_run.py`, in Inspect's own environment). Nothing is fetched: what a
task would read from a hub or download is given by the job or refused. How the evaluation ended is read from
Inspect's log, since its command exits 0 also when it failed, and its own metrics leave out what failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from assay import data, setup
from assay.backends import inspect_tasks, places
from assay.backends.base import (
    Command,
    Context,
    Ended,
    Expected,
    Listing,
    Normalised,
    Reached,
    arguments_of,
    checked_arguments,
    require_endpoint,
    told_file,
    write_told,
)
from assay.backends.inspect_arguments import LOCAL, PUBLISHED, Arguments, check
from assay.backends.inspect_records import PLANNED, SAMPLES, Record, load, reported, rows, seed_of
from assay.backends.lines import LineCounter
from assay.digest import sha256_file
from assay.errors import AssayError, ConfigurationError
from assay.evaluator import load_evaluator
from assay.paths import EVALUATORS, relative
from assay.run import route
from assay.run.native import Scratch, program, surroundings
from assay.suite.job import Job
from assay.suite.target import Target

CHILD = EVALUATORS / "inspect_run.py"
KEY_VARIABLE = "ASSAY_API_KEY"
CACHE_VARIABLE = "INSPECT_EVALS_CACHE_DIR"


class Inspect:
    """See the module."""

    name: str = "inspect"
    arguments: type[BaseModel] = Arguments
    lists = True

    def validate(self, job: Job, target: Target) -> None:
        """Refuse options that are unknown or contradict each other, and a task that nobody has."""
        check(job, checked_arguments(self, job))
        require_endpoint(job, target)
        if job.dataset.startswith(PUBLISHED):
            inspect_tasks.require_published(job.id, job.dataset.removeprefix(PUBLISHED))

    def plan(self, job: Job, target: Target) -> Expected:
        """What the file holds, or what inspect-evals says of its task."""
        arguments: Arguments = arguments_of(self, job)
        needed = [f"the environment {self.name}: eval/scripts/setup {self.name}"]
        needed += [f"the data set {name}: eval/scripts/data {name}" for name in self.data(job)]
        needed += [place for place in arguments.places if places.pinned(place) is None]
        samples = self._samples(job, arguments)
        if samples is not None:
            samples = min(samples, job.limit or samples) * job.repeats
        return Expected(samples, requirements=tuple(needed), warnings=_warnings(job))

    def prepare(self, job: Job, target: Target) -> None:
        """Make the environment."""
        setup.ensure(setup.ENVIRONMENTS[self.name])

    def require(self, job: Job, target: Target, environ: Mapping[str, str]) -> None:
        """Refuse to start without the environment, the task, or what it reads."""
        setup.require(setup.ENVIRONMENTS[self.name])
        self.validate(job, target)
        arguments: Arguments = arguments_of(self, job)
        places.require(job.id, arguments.places)
        route.require(self.data(job))

    def inputs(self, job: Job, target: Target) -> Mapping[str, str]:
        """The environment, the child's program, and all that the job reads."""
        arguments: Arguments = arguments_of(self, job)
        home = load_evaluator(self.name).home
        files = [CHILD, *(home / name for name in ("evaluator.toml", "build.lock", "requirements.lock"))]
        found = {f"file:{relative(path)}": sha256_file(path) for path in files}
        found[f"environment:{self.name}"] = setup.check(setup.ENVIRONMENTS[self.name]).digest
        found |= places.digests(arguments.places)
        for name in self.data(job):
            found |= data.frozen(name)
        return found

    def data(self, job: Job) -> Sequence[str]:
        """The pinned data sets that its arguments name."""
        arguments: Arguments = arguments_of(self, job)
        return places.names(arguments.places)

    def keys(self, job: Job) -> None:
        """Only the evaluator knows them."""

    def listing(self, context: Context) -> Listing:
        """Inspect makes the task; the program of this checkout ends it then."""
        return Listing(self._environment(context), PLANNED)

    def told(self, context: Context) -> Mapping[str, Any]:
        """The child's job."""
        return child_job(context, arguments_of(self, context.job))

    def words(self, context: Context) -> Sequence[str]:
        """The program of this checkout in Inspect's environment."""
        return [str(program(load_evaluator(self.name), "python")), "-P", str(CHILD), str(told_file(context))]

    async def run(self, context: Context) -> Ended:
        """Start the child and wait for its end."""
        if context.lane is None:
            raise ConfigurationError(f"job {context.job.id} has nobody to ask", "it has no lane", "")
        write_told(context, self.told(context))
        command = Command(
            words=self.words(context),
            environment=self._environment(context),
            cwd=Scratch(context.scratch).folder("work"),
            secrets={KEY_VARIABLE: context.lane.key},
        )
        planned = LineCounter(context.folder / PLANNED)
        ended = LineCounter(context.folder / SAMPLES)
        return await context.start(command, lambda: Reached(ended(), planned() * context.job.repeats or None))

    def normalize(self, context: Context, ended: Ended) -> Normalised:
        """The rows of the planned tasks, and whatever is wrong with the records."""
        arguments: Arguments = arguments_of(self, context.job)
        record = load(context.folder)
        primary = arguments.primary or arguments.scorer or _first(record)
        problems = [*record.problems, *_endings(record, ended)]
        return Normalised(
            rows=rows(context, arguments, record, primary),
            primary=primary,
            reported=reported(record),
            problems=tuple(problems),
            notes=_notes(record),
        )

    def _environment(self, context: Context) -> dict[str, str]:
        """The child's whole environment but for its key; what a task would download lies in its cache."""
        arguments: Arguments = arguments_of(self, context.job)
        scratch = Scratch(context.scratch)
        cache = scratch.folder("inspect-evals")
        for path, place in arguments.files.items():
            link = cache / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(places.resolve(place, context.data))
        return surroundings(load_evaluator(self.name), scratch, {CACHE_VARIABLE: str(cache)})

    def _samples(self, job: Job, arguments: Arguments) -> int | None:
        if job.dataset != LOCAL:
            # With arguments of its own a task may ask something else than it is said to have.
            name = job.dataset.removeprefix(PUBLISHED)
            return None if arguments.task_args else inspect_tasks.published_samples(name)
        try:
            return inspect_tasks.local_samples(_here(str(arguments.file)))
        except AssayError:
            return None  # its data are not here yet


def linked(context: Context, arguments: Arguments, scratch: Scratch) -> Path:
    """A folder with a link for each file that inspect-evals would else download."""
    cache = scratch.folder("inspect-evals")
    for path, place in arguments.files.items():
        link = cache / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(places.resolve(place, context.data))
    return cache


def child_job(context: Context, arguments: Arguments) -> dict[str, Any]:
    """What the child is told; no secret stands in it."""
    job, lane = context.job, context.lane
    return {
        "task": job.dataset,
        "file": None if arguments.file is None else str(places.resolve(arguments.file, context.data)),
        "columns": arguments.columns,
        "scorer": arguments.scorer,
        "scorer_args": dict(arguments.scorer_args),
        "system": arguments.system,
        "template": arguments.template,
        "task_args": dict(arguments.task_args),
        "hub": {name: str(places.resolve(place, context.data)) for name, place in arguments.hub.items()},
        "limits": arguments.limits,
        "model": lane.model if lane is not None else None,
        "base_url": lane.base_url if lane is not None else None,
        "generation": generation(job),
        "parts": parts(job),
        "limit": job.limit,
        "slots": context.slots,
        "output": str(context.folder),
    }


def generation(job: Job) -> dict[str, Any]:
    """The sampling options in Inspect's words; those it has none for go into the request's body."""
    asked = job.generation
    words = (
        "temperature",
        "top_p",
        "max_tokens",
        "presence_penalty",
        "frequency_penalty",
        "reasoning_effort",
    )
    found = {name: getattr(asked, name) for name in words if getattr(asked, name) is not None}
    if asked.stop:
        found["stop_seqs"] = list(asked.stop)
    more = {name: getattr(asked, name) for name in ("top_k", "min_p", "repetition_penalty")}
    body = {**{name: value for name, value in more.items() if value is not None}, **asked.extra_body}
    return {**found, "extra_body": body} if body else found


def parts(job: Job) -> list[dict[str, Any]]:
    """The evaluations it takes: one, or one for each repeat where each has a seed of its own."""
    if job.generation.seed is None or not job.generation.sampled:
        return [{"first": 0, "repeats": job.repeats, "seed": job.generation.seed}]
    return [{"first": n, "repeats": 1, "seed": seed_of(job, n)} for n in range(job.repeats)]


def _warnings(job: Job) -> tuple[str, ...]:
    if job.repeats > 1 and not job.generation.sampled:
        return ("it is greedy: its repeats may be one answer",)
    return ()


def _here(place: str) -> Path:
    """Where a place would be, pinned data being where their store keeps them."""
    name = places.pinned(place)
    return places.resolve(place, {} if name is None else {name: data.find(name).path})


def _first(record: Record) -> str:
    """The name of the first score that Inspect computed."""
    names = [str(score.get("name")) for score in record.scores]
    return names[0] if names else "score"


def _endings(record: Record, ended: Ended) -> list[str]:
    """What Inspect says went wrong, from its logs; the exit code is not asked."""
    if record.refused is not None:
        return [record.refused]
    if record.logs is None:
        if ended.why != "exit":
            return []
        said = f": {ended.said}" if ended.said else ""
        return [f"Inspect ended before it wrote how (exit code {ended.code}){said}"]
    return [
        f"Inspect's log says {log.get('status')}: {(log.get('error') or {}).get('message', 'no reason')}"
        for log in record.logs
        if log.get("status") not in ("success", "cancelled")
    ]


def _notes(record: Record) -> tuple[str, ...]:
    found = []
    for log in record.logs or ():
        results = log.get("results") or {}
        asked, scored = results.get("total_samples"), results.get("completed_samples")
        if asked != scored:
            found.append(
                f"Inspect's own metrics are over {scored} of {asked} samples: it leaves out what failed"
            )
    return tuple(found)
