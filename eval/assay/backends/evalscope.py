"""The backend `evalscope`: one dataset of EvalScope over local data.

One child a job (`eval/evaluators/evalscope_run.py`, in EvalScope's own environment), since two datasets in
one process shuffle each other's options. Each attempt has a fresh folder and reuses nothing: EvalScope's own
cache answers from a run with other settings without a word. Answers that were had come from the gateway.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from assay import data, setup
from assay.backends import evalscope_records as records
from assay.backends import evalscope_reported as reported
from assay.backends import nltk_data, places
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
from assay.backends.evalscope_arguments import Arguments, check
from assay.backends.evalscope_benchmarks import (
    BENCHMARKS,
    BFCL,
    IFBENCH,
    MEMORY_VECTOR,
    NEEDLE,
    NLTK_PARTS,
    OWN,
)
from assay.backends.evalscope_child import TOKENIZER_VARIABLE, child_job, environment, searches, tokenizer
from assay.backends.evalscope_rows import Source, rows
from assay.backends.lines import LineCounter
from assay.digest import sha256_file
from assay.errors import AssayError, ConfigurationError, PrerequisiteError
from assay.evaluator import load_evaluator
from assay.paths import EVALUATORS, relative
from assay.run import route
from assay.run.key import Key
from assay.run.native import Scratch, program
from assay.suite.job import Job
from assay.suite.target import Target

CHILD = EVALUATORS / "evalscope_run.py"
KEY_VARIABLE = "ASSAY_API_KEY"
SEARCH_VARIABLE = "SERPAPI_API_KEY"


class EvalScope:
    """See the module."""

    name: str = "evalscope"
    arguments: type[BaseModel] = Arguments
    lists = True

    def validate(self, job: Job, target: Target) -> None:
        """Refuse options that are unknown or contradict each other."""
        check(job, checked_arguments(self, job))
        require_endpoint(job, target)

    def plan(self, job: Job, target: Target) -> Expected:
        """What the benchmark is known to hold, or the user's own files do."""
        arguments: Arguments = arguments_of(self, job)
        evaluator = environment_of(job, arguments)
        needed = [f"the environment {evaluator}: eval/scripts/setup {evaluator}"]
        needed += [f"the data set {name}: eval/scripts/data {name}" for name in self.data(job)]
        needed += [place for place in local_places(job, arguments) if places.pinned(place) is None]
        if searches(job, arguments):
            needed.append(f"the variable {SEARCH_VARIABLE}, and a network")
        if job.dataset == NEEDLE and arguments.tokenizer is None:
            needed.append(f"the variable {TOKENIZER_VARIABLE}")
        return Expected(
            total=total(job, arguments), requirements=tuple(needed), warnings=_warnings(job, arguments)
        )

    def prepare(self, job: Job, target: Target) -> None:
        """Make the environment that asks the job."""
        setup.ensure(setup.ENVIRONMENTS[environment_of(job, arguments_of(self, job))])

    def require(self, job: Job, target: Target, environ: Mapping[str, str]) -> None:
        """Refuse to start without the environment, the data, a secret, or what a subset needs."""
        arguments: Arguments = arguments_of(self, job)
        if searches(job, arguments) and not environ.get(SEARCH_VARIABLE):
            raise ConfigurationError(
                f"job {job.id} searches the web, and {SEARCH_VARIABLE} is not set",
                "BFCL's web_search subsets ask SerpAPI",
                f"export {SEARCH_VARIABLE}, or leave these subsets out of subset_list",
            )
        if job.dataset == NEEDLE:
            tokenizer(job, arguments, environ)
        setup.require(setup.ENVIRONMENTS[environment_of(job, arguments)])
        places.require(job.id, local_places(job, arguments, environ))
        route.require(self.data(job))
        if job.dataset == IFBENCH:
            _require_nltk(job, _here(arguments.nltk_data))

    def inputs(self, job: Job, target: Target) -> Mapping[str, str]:
        """The environment, the child's program, and all that the job reads."""
        arguments: Arguments = arguments_of(self, job)
        evaluator = load_evaluator(environment_of(job, arguments))
        home = evaluator.home
        files = [CHILD, *(home / name for name in ("evaluator.toml", "build.lock", "requirements.lock"))]
        found = {f"file:{relative(path)}": sha256_file(path) for path in files}
        found[f"environment:{evaluator.name}"] = setup.check(setup.ENVIRONMENTS[evaluator.name]).digest
        return found | places.digests(local_places(job, arguments))

    def data(self, job: Job) -> Sequence[str]:
        """The pinned data sets that the benchmark and the arguments name."""
        arguments: Arguments = arguments_of(self, job)
        return places.names(_places(job, arguments))

    def keys(self, job: Job) -> None:
        """Only the evaluator knows them."""

    def listing(self, context: Context) -> Listing:
        """EvalScope loads its data and words its prompts; the program of this checkout ends it then."""
        arguments: Arguments = arguments_of(self, context.job)
        evaluator = load_evaluator(environment_of(context.job, arguments))
        told = environment(context, evaluator, arguments, Scratch(context.scratch))
        return Listing(told, records.TASKS)

    def told(self, context: Context) -> Mapping[str, Any]:
        """The child's job."""
        return child_job(context, arguments_of(self, context.job), Scratch(context.scratch))

    def words(self, context: Context) -> Sequence[str]:
        """The program of this checkout in EvalScope's environment."""
        evaluator = load_evaluator(environment_of(context.job, arguments_of(self, context.job)))
        return [str(program(evaluator, "python")), "-P", str(CHILD), str(told_file(context))]

    async def run(self, context: Context) -> Ended:
        """Start the child and wait for its end."""
        arguments: Arguments = arguments_of(self, context.job)
        if context.lane is None:
            raise ConfigurationError(f"job {context.job.id} has nobody to ask", "it has no lane", "")
        scratch = Scratch(context.scratch)
        evaluator = load_evaluator(environment_of(context.job, arguments))
        write_told(context, self.told(context))
        secrets = {KEY_VARIABLE: context.lane.key}
        if searches(context.job, arguments):
            secrets[SEARCH_VARIABLE] = Key(os.environ.get(SEARCH_VARIABLE, ""))
        command = Command(
            words=self.words(context),
            environment=environment(context, evaluator, arguments, scratch),
            cwd=scratch.folder("work"),
            secrets=secrets,
        )
        planned = LineCounter(context.folder / records.TASKS)
        failed = LineCounter(context.folder / records.FAILURES)
        answered: dict[Path, LineCounter] = {}

        def reached() -> Reached:
            for path in (context.folder / "predictions" / records.MODEL).glob("*.jsonl"):
                answered.setdefault(path, LineCounter(path))
            total = planned()
            # What failed to prepare a memory is a line too, and no sample.
            done = failed() + sum(count() for count in answered.values())
            return Reached(min(done, total), total or None)

        return await context.start(command, reached)

    def normalize(self, context: Context, ended: Ended) -> Normalised:
        """The rows of the planned samples, and whatever is wrong with the records."""
        job = context.job
        arguments: Arguments = arguments_of(self, job)
        record = records.load(context.folder, job.dataset)
        known = BENCHMARKS.get(job.dataset)
        primary = known.primary if known is not None else reported.first_metric(context.folder)
        source = Source(job, context.folder, context.run, primary)
        counted = reported.count(source, record)
        problems = [*record.problems, *counted.problems, *_endings(record, counted, ended)]
        whole = counted.whole and not arguments.limited(job) and arguments.local_data is None
        figures = reported.figures(job, record, counted)
        return Normalised(
            rows=rows(source, record),
            primary=primary,
            reported=figures,
            official=whole and known is not None and counted.planned == total(job, arguments),
            problems=tuple(problems),
            notes=(*record.notes, *counted.notes),
        )


def total(job: Job, arguments: Arguments) -> int | None:
    """Samples that the job asks, repeats counted; None where only the data tell, and they are not known."""
    known = BENCHMARKS.get(job.dataset)
    if job.dataset in OWN:
        counts = _own_counts(job, arguments)
    elif job.dataset == NEEDLE:
        each = arguments.context_lengths.intervals * arguments.depths.intervals
        counts = [each] * len(arguments.subsets_of(NEEDLE))
    elif known is not None and arguments.local_data is None:
        counts = [known.subsets[name] for name in arguments.subsets_of(job.dataset)]
    else:
        return None
    if counts is None:
        return None
    return sum(min(count, job.limit or count) for count in counts) * job.repeats


def _own_counts(job: Job, arguments: Arguments) -> list[int] | None:
    """Lines of the user's own files, a subset each; None where one is not there or is no JSONL."""
    split = OWN[job.dataset]
    counts = []
    for subset in arguments.subset_list or ("default",):
        try:
            folder = _here(str(arguments.local_data))
            names = (f"{subset}_{split}.jsonl", f"{subset}.jsonl")
            path = next(folder / name for name in names if (folder / name).is_file())
            lines = path.read_bytes().split(b"\n")
        except (AssayError, OSError, StopIteration):
            return None
        counts.append(sum(1 for line in lines if line.strip()))
    return counts


def _places(job: Job, arguments: Arguments) -> tuple[str, ...]:
    """Everything that the job reads, pinned or not, as far as the configuration says."""
    found = [arguments.data_of(job.dataset)]
    if job.dataset == NEEDLE:
        found.append(arguments.tokenizer)
    if job.dataset == IFBENCH:
        found.append(arguments.nltk_data)
    return tuple(place for place in found if place is not None)


def local_places(job: Job, arguments: Arguments, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The same, with what only the environment names."""
    found = _places(job, arguments)
    if job.dataset == NEEDLE and arguments.tokenizer is None and environ.get(TOKENIZER_VARIABLE):
        found = (*found, environ[TOKENIZER_VARIABLE])
    return found


def _here(place: str) -> Path:
    """Where a place would be, pinned data being where their store keeps them."""
    name = places.pinned(place)
    return places.resolve(place, {} if name is None else {name: data.find(name).path})


def _require_nltk(job: Job, folder: Path) -> None:
    """Raise PrerequisiteError unless all of NLTK's data that IFBench's checks read are in the folder."""
    missing = nltk_data.lacking(folder, NLTK_PARTS)
    if missing:
        raise PrerequisiteError(
            f"job {job.id} reads NLTK's data, and {missing[0]} is not in {folder}",
            "without them IFBench gives no score, and would fetch them from the network",
            f"put {', '.join(missing)} there, unpacked or each as its .zip",
        )


def environment_of(job: Job, arguments: Arguments) -> str:
    """The evaluator that asks the job: `memory_vector` needs what the usual one leaves out."""
    vector = job.dataset == BFCL and MEMORY_VECTOR in arguments.subsets_of(BFCL)
    return "evalscope-vector" if vector else "evalscope"


def _warnings(job: Job, arguments: Arguments) -> tuple[str, ...]:
    found = []
    if job.repeats > 1 and not job.generation.sampled:
        found.append("it is greedy: its repeats may be one answer")
    if job.dataset == BFCL and arguments.limited(job):
        found.append("BFCL's overall figure is computed only when all 22 subsets are asked whole")
    if arguments.allow_network_downloads:
        found.append("EvalScope may fetch from the network; what it fetches is not pinned")
    return tuple(found)


def _endings(record: records.Record, counted: reported.Counted, ended: Ended) -> list[str]:
    """What the records say went wrong; the exit code is not asked."""
    if record.refused is not None:
        return [record.refused]
    said = f": {ended.said}" if ended.said else ""
    if ended.why != "exit":
        return []
    if record.tasks is None:
        return [f"EvalScope ended before it said what it would ask (exit code {ended.code}){said}"]
    if not record.tasks:
        return ["EvalScope found nothing to ask"]
    if counted.ended < counted.planned:
        left = counted.planned - counted.ended
        return [
            f"EvalScope ended with {left} samples neither asked nor failed (exit code {ended.code}){said}"
        ]
    return []
