"""The run of a suite as an auditor holds it: what was asked, how it ended, what each child was told."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from assay import data
from assay.audit.case import Recorded
from assay.backends import registry
from assay.backends.base import Backend, Context, Lane
from assay.coordinator import frozen
from assay.coordinator.directory import attempt_folder, launch_folder, load_suite
from assay.coordinator.frozen import Frozen
from assay.coordinator.records import context_of
from assay.coordinator.state import State, load_state
from assay.errors import AssayError, VerificationError
from assay.pinset import current
from assay.record.results import SAMPLES
from assay.record.suite_results import RecordedRows, load_suite_summary
from assay.record.suite_summary import SuiteSummary
from assay.run.key import Key
from assay.suite.job import Job
from assay.suite.suite import Suite

LANE = re.compile(r"http://127\.0\.0\.1:\d{1,5}/(?P<job>[^/]+)/v1")
NO_KEY = "the key of a lane is in no record"


@dataclass(frozen=True)
class SuiteCase(Recorded):
    """The run of a suite."""

    @cached_property
    def suite(self) -> Suite:
        """What the run says it asked."""
        return load_suite(self.run)

    @cached_property
    def state(self) -> State:
        """How it ended."""
        return load_state(self.run)

    @cached_property
    def summary(self) -> SuiteSummary:
        """What it printed."""
        return load_suite_summary(self.run)

    @cached_property
    def frozen(self) -> Frozen:
        """The inputs before the first request, and which job depends on which."""
        return frozen.load(self.run)

    @cached_property
    def backends(self) -> Mapping[str, Backend]:
        """Those that the jobs name."""
        return {name: registry.find(name) for name in {job.backend for job in self.suite.jobs}}

    @cached_property
    def local(self) -> Mapping[str, Path]:
        """Where each data set of the jobs lies in this checkout, or would lie."""
        found: dict[str, Path] = {}
        wanted = sorted({name for job in self.suite.jobs for name in self.backend(job).data(job)})
        known = data.datasets() if wanted else {}
        for name in wanted:
            try:
                found[name] = data.find(name).path
            except AssayError:
                found[name] = current().data / (known[name].folder if name in known else name)
        return found

    @cached_property
    def inputs_here(self) -> Mapping[str, Mapping[str, str] | AssayError]:
        """What each job's result would depend on in this checkout, by its id; or why nobody can tell."""
        found: dict[str, Mapping[str, str] | AssayError] = {}
        for job in self.suite.jobs:
            try:
                found[job.id] = self.backend(job).inputs(job, self.suite.target(job))
            except AssayError as error:
                found[job.id] = error
        return found

    def here(self) -> Mapping[str, str]:
        """Digests of this checkout's inputs, as far as they can be told."""
        told = [each for each in self.inputs_here.values() if not isinstance(each, AssayError)]
        return {name: digest for each in told for name, digest in each.items()}

    def backend(self, job: Job) -> Backend:
        """The backend of a job."""
        return self.backends[job.backend]

    def asks(self, job: Job) -> bool:
        """Whether the job's rows are answers of its target; a mock asks where it is told to."""
        silent = job.backend == "mock" and job.backend_args.get("ask") is not True
        return self.suite.target(job).protocol != "none" and not silent

    def rows(self, job: Job) -> RecordedRows:
        """The recorded rows of a job."""
        return RecordedRows(self.run / SAMPLES, job.id)

    def attempts(self, job: Job) -> Iterator[int]:
        """The attempts of a job whose child was started: those that were told something."""
        for attempt in range(1, self.state.job(job.id).attempt + 1):
            if (launch_folder(self.run, job.id) / f"command.{attempt}.json").exists():
                yield attempt

    def begun(self, job: Job) -> bool:
        """Whether the child of a job's last attempt has left anything."""
        folder = self.run / attempt_folder(job.id, self.state.job(job.id).attempt)
        return any(path.is_file() for path in folder.rglob("*"))

    def lane(self, job: Job, base_url: object) -> Lane:
        """The lane that a job's child was given.

        Raises:
            VerificationError: the address is none of a lane of this job.
        """
        match = LANE.fullmatch(base_url) if isinstance(base_url, str) else None
        if match is None or match["job"] != job.id:
            raise VerificationError(f"{job.id}: its child was to ask {base_url!r}, which is not its lane")
        target = self.suite.target(job)
        return Lane(match[0], target.model or target.serve or "", Key(NO_KEY))

    @contextmanager
    def context(self, job: Job, attempt: int, lane: Lane | None) -> Iterator[Context]:
        """The context of an attempt, with a private folder of the name that the run's own had."""
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name) / f"job-{job.id}"
            scratch.mkdir()
            state = self.state.job(job.id).model_copy(update={"attempt": attempt})
            context = context_of(self.run, self.suite, job, state, self.local, scratch)
            yield replace(context, lane=lane)
