"""A suite's run as its readers hold it: each job is a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.coordinator import frozen
from assay.coordinator.directory import load_suite
from assay.coordinator.frozen import Frozen
from assay.coordinator.state import State, load_state
from assay.files import read_json
from assay.record.dataset_result import DatasetCounts, DatasetResult
from assay.record.results import SUMMARY
from assay.record.sample import Sample
from assay.record.statistics import Bounds
from assay.record.suite_results import load_suite_summary
from assay.record.suite_summary import SuiteSummary
from assay.suite.job import Job
from assay.suite.suite import Suite
from assay.view import conditions, exchange_verifiers, facts, rows
from assay.view.exchange_evalscope import EvalScope
from assay.view.exchange_inspect import Inspect
from assay.view.exchange_mock import Mock
from assay.view.exchanges import Exchanges, Reader
from assay.view.lines import Lines
from assay.view.view import Benchmark, Exchange, Fact, Kind

# This checkout's own programs in an evaluator's environment, which ask for it.
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "evalscope": ("evalscope_run.py",),
    "inspect": ("inspect_run.py",),
    "verifiers": ("tasks_v0.py", "tasks_v1.py"),
}
LIMITS = frozenset({"message_limit", "token_limit", "time_limit"})


class SuiteView:
    """See `assay.view.view.View`.

    Args:
        run: The run directory.

    Raises:
        VerificationError: the run did not come to its end, or its record cannot be read.
    """

    kind: Kind = "suite"

    def __init__(self, run: Path) -> None:
        self.run = run
        self._suite: Suite = load_suite(run)
        self._state: State = load_state(run)
        self._summary: SuiteSummary = load_suite_summary(run)
        self.name = self._suite.name
        self.description = self._suite.description
        self.status: str = self._summary.status
        self.started: str | None = self._state.started_at
        self.ended: str | None = self._state.ended_at
        asked = [target for target in self._summary.targets if target.protocol != "none"]
        self.model = ", ".join(dict.fromkeys(target.model for target in asked))
        claimed = dict.fromkeys(target.server for target in asked if target.server is not None)
        self.server: str | None = ", ".join(claimed) or None

    def facts(self) -> tuple[Fact, ...]:
        """See `View`."""
        summary = self._summary
        found = [*facts.of_record(self.run), *facts.of_pins(summary.pins)]
        served = [target.serve for target in self._suite.targets if target.serve is not None]
        found += facts.of_models({name: self._frozen.inputs.get(f"model:{name}") for name in served})
        for target in summary.targets:
            if target.protocol != "none":
                found += facts.of_server(target.server, f"server of {target.name}")
            found += [
                Fact(f"{target.name}: {name}", word, "claimed") for name, word in target.declared.items()
            ]
        found.append(Fact("evaluators' records", f"kept: {summary.retention}", "measured"))
        if self._state.resumed:
            found.append(Fact("resumed", f"{self._state.resumed} time(s)", "measured"))
        found += facts.said(summary.problems, summary.notes)
        for result in summary.jobs:
            told = result.notes if result.error is None else (result.error, *result.notes)
            found += facts.said(result.problems, told, result.job)
        return tuple(found)

    def benchmarks(self) -> tuple[Benchmark, ...]:
        """See `View`."""
        jobs = {job.id: job for job in self._suite.jobs}
        return tuple(self._benchmark(jobs[result.job], result) for result in self._summary.jobs)

    def samples(self) -> Iterator[Sample]:
        """See `View`."""
        return rows.read(self.run)

    def exchanges(self) -> Iterator[tuple[Sample, Exchange | None]]:
        """See `View`."""
        return self._exchanges.all()

    def exchange(self, sample: Sample) -> Exchange | None:
        """See `View`."""
        return self._exchanges.one(sample)

    def summary(self) -> Mapping[str, Any]:
        """See `View`."""
        value = read_json(self.run / SUMMARY)
        return value if isinstance(value, dict) else {}

    @cached_property
    def _exchanges(self) -> Exchanges:
        backends = {job.id: job.backend for job in self._suite.jobs}
        readers: dict[str, Reader] = {"evalscope": EvalScope(), "inspect": Inspect(), "mock": Mock()}

        def reader(row: Sample) -> Reader | None:
            # Of an inner run it is told by the record's name.
            name = backends.get(row.entry, "")
            return exchange_verifiers.reader(row) if name == "verifiers" else readers.get(name)

        return Exchanges(Lines(self.run), self.samples, reader)

    @cached_property
    def _traits(self) -> Mapping[rows.Group, rows.Trait]:
        return rows.traits(self.run, by_family=False)

    @cached_property
    def _frozen(self) -> Frozen:
        return frozen.load(self.run)

    def _benchmark(self, job: Job, result: DatasetResult) -> Benchmark:
        trait = self._traits.get((job.id, None))
        bounds = None
        if result.low is not None and result.high is not None:
            bounds = Bounds(low=result.low, high=result.high)
        baselines = {family.baseline for family in result.families}
        return Benchmark(
            name=job.id,
            entry=job.id,
            family=None,
            metric=result.primary or None,
            binary=trait.binary if trait else None,
            score=result.score,
            bounds=bounds,
            confidence=self._summary.confidence,
            # Of several families there is a baseline each, and none of all of them.
            baseline=baselines.pop() if len(result.families) == 1 else None,
            counts=_counts(result.counts),
            conditions=self._conditions(job, result, trait),
        )

    def _conditions(self, job: Job, result: DatasetResult, trait: rows.Trait | None) -> Mapping[str, str]:
        target = self._suite.target(job)
        inputs = {
            name: self._frozen.inputs[name]
            for name in self._frozen.jobs.get(job.id, ())
            if name in self._frozen.inputs
        }
        local = {name.removeprefix("local:"): digest for name, digest in inputs.items() if "local:" in name}
        found = {
            "evaluator.name": job.backend,
            "evaluator.tasks": job.dataset,
            "evaluator.pins": self._suite.pins,
            "limits.timeout_seconds": conditions.text(target.request.timeout_seconds),
            "limits.retries": conditions.text(target.request.retries),
        }
        found |= {
            f"limits.budget.{name}": value
            for name, value in conditions.leaves("", job.budget.model_dump(mode="json", exclude_none=True))
        }
        found |= dict(conditions.leaves("sampling", result.sampling))
        found |= _arguments(job, local)
        found |= {
            f"template.launch.{name.rpartition('/')[2]}": digest
            for name, digest in inputs.items()
            if name.startswith("launch:")
        }
        found |= conditions.of_inputs(inputs, "sandbox:image" in inputs, PROGRAMS.get(job.backend, ()))
        found |= conditions.of_tasks(trait, job.repeats, job.limit)
        return dict(sorted(found.items()))


def _arguments(job: Job, local: Mapping[str, str]) -> dict[str, str]:
    """The backend's own options; a path of the machine is told by what lay there."""
    found = {}
    for name, value in conditions.leaves("", job.backend_args):
        if name in LIMITS:
            found[f"limits.{name}"] = value
        elif name == "runtime":
            found["sandbox.runtime"] = value
        else:
            found[f"template.{name}"] = local.get(value, value)
    return found


def _counts(counts: DatasetCounts) -> dict[str, int | None]:
    return {
        "planned": counts.planned,
        "scored": counts.scored,
        "errored": counts.failed,
        "truncated": counts.truncated,
        "missing": counts.missing,
        "empty": counts.empty,
        "thought_only": counts.thought_only,
        "unparsed": counts.unparsed,
    }
