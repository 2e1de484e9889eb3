"""A profile's run as its readers hold it: each family of each entry is a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from assay import dialect
from assay.errors import VerificationError
from assay.files import read_json
from assay.plan import NAME, EntryPlan, OwnServer, Plan, load_plan
from assay.record import asked
from assay.record.results import SUMMARY, load_summary, load_tasks
from assay.record.sample import Sample, TaskPlan
from assay.record.scores import FamilyScore
from assay.record.statistics import Bounds
from assay.record.summary import Summary
from assay.run.state import State, load_state
from assay.view import conditions, exchange_verifiers, facts, rows
from assay.view.exchanges import Exchanges
from assay.view.lines import Lines
from assay.view.view import Benchmark, Exchange, Fact, Kind

# Of an evaluator's native configuration: what is the server's, the machine's, or is told by another name.
ELSEWHERE = frozenset(
    {
        *("client", "endpoint", "headers", "headers_from_state", "model", "sampling", "sampling_args"),
        *("push", "output_dir", "run", "save_results", "save_to_hf_hub", "hf_hub_dataset_name", "verbose"),
        *("max_concurrent", "max_concurrent_generation", "max_concurrent_scoring", "num_rollouts"),
        *("rollouts_per_example", "temperature", "max_tokens", "serve", "disable_env_server"),
    }
)
# Of Verifiers 0.1: what bounds a rollout, beside its sampling.
BOUNDS = frozenset({"timeout", "max_retries"})


class ProfileView:
    """See `assay.view.view.View`.

    Args:
        run: The run directory.

    Raises:
        VerificationError: the run did not come to its end, or its record cannot be read.
    """

    kind: Kind = "profile"

    def __init__(self, run: Path) -> None:
        self.run = run
        self._plan: Plan = load_plan(run / NAME)
        self._state: State = load_state(run)
        self._summary: Summary = load_summary(run)
        self.name = self._plan.profile
        self.description = self._plan.description
        self.status: str = self._summary.status
        self.started: str | None = self._state.started_at
        self.ended: str | None = self._state.ended_at
        self.model = self._summary.model
        self.server = self._summary.server

    def facts(self) -> tuple[Fact, ...]:
        """See `View`."""
        server = self._plan.server
        own = {server.model: self._inputs("before").get(f"model:{server.model}")}
        found = [*facts.of_record(self.run), *facts.of_pins(self._summary.pins)]
        found += facts.of_runtime(self._summary.runtime, self._summary.egress)
        found += facts.of_models(own if isinstance(server, OwnServer) else {})
        found += facts.of_server(self.server)
        return (*found, *facts.said(self._summary.problems, self._summary.notes))

    def benchmarks(self) -> tuple[Benchmark, ...]:
        """See `View`."""
        return tuple(self._benchmark(score) for score in self._summary.families)

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
        return Exchanges(Lines(self.run), self.samples, exchange_verifiers.reader)

    @cached_property
    def _traits(self) -> Mapping[rows.Group, rows.Trait]:
        return rows.traits(self.run, by_family=True)

    @cached_property
    def _tasks(self) -> Mapping[str, TaskPlan]:
        return load_tasks(self.run, self._plan)

    def _inputs(self, when: str) -> Mapping[str, str]:
        """The frozen inputs "before" the run; "after-<entry>" holds of task data what that entry reads."""
        value = facts.read(self.run, f"inputs.{when}.json").get("inputs")
        if not isinstance(value, dict):
            raise VerificationError(
                f"provenance/inputs.{when}.json of {self.run} holds no inputs", "", f"assay audit {self.run}"
            )
        return {str(name): str(digest) for name, digest in value.items()}

    def _benchmark(self, score: FamilyScore) -> Benchmark:
        entry = next(entry for entry in self._plan.entries if entry.name == score.entry)
        trait = self._traits.get((score.entry, score.family))
        bounds = None
        if score.low is not None and score.high is not None:
            bounds = Bounds(low=score.low, high=score.high)
        return Benchmark(
            name=f"{score.entry}/{score.family}",
            entry=score.entry,
            family=score.family,
            metric=next(iter(score.rewards)) if len(score.rewards) == 1 else None,
            binary=trait.binary if trait else None,
            score=score.score,
            bounds=bounds,
            confidence=self._summary.confidence,
            baseline=score.baseline,
            counts={name: value for name, value in score.counts.model_dump().items() if name != "duplicates"},
            conditions=self._conditions(entry, score.family, trait),
        )

    def _conditions(self, entry: EntryPlan, family: str, trait: rows.Trait | None) -> Mapping[str, str]:
        plan = self._plan
        native = plan.native(entry)
        spoken = dialect.of(plan.dialect)
        found = self._of_entry(entry)
        found |= conditions.of_tasks(trait, entry.rollouts, spoken.tasks(native))
        prompts = [
            [task.key, task.prompt_digest]
            for task in self._tasks[entry.name].tasks
            if task.family == family and task.prompt_digest is not None
        ]
        if prompts:
            found["template.prompts"] = conditions.digest(prompts)
        return dict(sorted(found.items()))

    def _of_entry(self, entry: EntryPlan) -> dict[str, str]:
        """The conditions that every family of an entry shares."""
        plan = self._plan
        native = plan.native(entry)
        found = {
            "evaluator.name": plan.evaluator,
            "evaluator.dialect": plan.dialect,
            "evaluator.tasks": plan.taskset(entry),
            "evaluator.pins": plan.pins,
            "sandbox.runtime": plan.runtime,
            "sandbox.egress": plan.egress,
        }
        if plan.runtime == "docker":
            found |= dict(conditions.leaves("sandbox.docker", plan.docker.model_dump(mode="json")))
        found |= dict(conditions.leaves("sampling", asked.sampling(plan.dialect, native)))
        if entry.seeds:
            found["sampling.seeds"] = conditions.text(entry.seeds)
        found |= _configured(plan, native)
        return found | conditions.of_inputs(self._of_data(entry), plan.runtime != "none")

    def _of_data(self, entry: EntryPlan) -> dict[str, str]:
        """The frozen inputs, of task data those of the entry alone."""
        before = self._inputs("before")
        if not any(name.startswith("data:") for name in before):
            return dict(before)
        try:
            after = self._inputs(f"after-{entry.name}")
        except VerificationError:
            # The entry came to no end: all that the run was to read.
            return dict(before)
        return {name: found for name, found in before.items() if name in after or "data:" not in name}


def _configured(plan: Plan, native: Mapping[str, Any]) -> dict[str, str]:
    """The rest of an evaluator's configuration: limits by their names, everything else as the template."""
    limits = asked.limits(plan.dialect, native)
    found = dict(conditions.leaves("limits", limits))
    count = {name for name, _ in conditions.leaves("", dialect.of(plan.dialect).first(1))}
    client = native.get("client")
    waits = client.get("timeout") if isinstance(client, Mapping) else None
    found |= dict(conditions.leaves("limits.client", waits or {}))
    for name, value in conditions.leaves("", {k: v for k, v in native.items() if not _elsewhere(k)}):
        parts = name.split(".")
        agent = parts[:2] == ["env", "agent"]
        if name in count or (agent and (parts[2] in limits or parts[2] == "runtime")):
            continue
        if agent and parts[2] == "timeout":
            found[f"limits.timeout.{'.'.join(parts[3:])}"] = value
        elif name in BOUNDS:
            found[f"limits.{name}"] = value
        else:
            found[f"template.{name.removeprefix('env.')}"] = value
    return found


def _elsewhere(name: str) -> bool:
    return name in ELSEWHERE or name.startswith("api_")
