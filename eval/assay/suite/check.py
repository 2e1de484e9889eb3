"""What backends and this machine have to say about a suite, before anything is asked.

Only the modules of those backends are imported that the suite's jobs name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.backends import registry
from assay.backends.base import Expected
from assay.console import complain
from assay.errors import AssayError, ConfigurationError
from assay.names import nearest
from assay.run.address import place
from assay.suite.job import Job
from assay.suite.key import target_key
from assay.suite.suite import Suite
from assay.suite.target import Target

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Planned:
    """A job as it will be asked.

    Attributes:
        job: The job.
        target: Of whom.
        slots: Requests it may have in flight at most.
        expected: What its backend will ask, with what the coordinator itself has to warn of.
    """

    job: Job
    target: Target
    slots: int
    expected: Expected


def check_suite(suite: Suite) -> None:
    """Let each job's backend judge the job.

    Raises:
        ConfigurationError: a backend is unknown, or refuses; every other refusal was printed.
    """
    _look([partial(_judge, job, suite.target(job)) for job in suite.jobs])


def check_runtime(suite: Suite, environ: Mapping[str, str]) -> None:
    """Look for everything that a run needs on this machine: keys, served models, what backends require.

    Args:
        suite: The suite, checked.
        environ: This process's variables.

    Raises:
        AssayError: something is not there; every other one was printed.
    """
    looks: list[Callable[[], object]] = []
    for target in suite.targets:
        looks.append(partial(target_key, target, environ))
        if target.serve is not None:
            looks.append(partial(_served, target.serve))
    _look([*looks, *(partial(_require, job, suite.target(job), environ) for job in suite.jobs)])


def plan_suite(suite: Suite) -> tuple[Planned, ...]:
    """What a checked suite will ask; nothing is asked, and nothing fetched."""
    return tuple(_planned(job, suite.target(job), suite.targets) for job in suite.jobs)


def _look(looks: Sequence[Callable[[], object]]) -> None:
    """Do all of it; what is refused is printed but for the gravest, which is raised."""
    errors: list[AssayError] = []
    for look in looks:
        try:
            look()
        except AssayError as error:
            if str(error) not in map(str, errors):  # several jobs may lack the same thing
                errors.append(error)
    if errors:
        # What is written wrongly first: nothing that is installed would mend it.
        gravest = min(errors, key=lambda found: found.exit_code)
        for other in errors:
            if other is not gravest:
                complain(other)
        raise gravest


def _judge(job: Job, target: Target) -> None:
    if job.backend not in registry.NAMES:
        raise ConfigurationError(
            f'job {job.id}: there is no backend "{job.backend}"',
            nearest(job.backend, registry.NAMES),
            "name one of them",
        )
    registry.find(job.backend).validate(job, target)


def _require(job: Job, target: Target, environ: Mapping[str, str]) -> None:
    registry.find(job.backend).require(job, target, environ)


def _served(model: str) -> None:
    from assay import models  # here alone: it brings a client of the package index

    models.verify(model)


def _planned(job: Job, target: Target, targets: Sequence[Target]) -> Planned:
    expected = registry.find(job.backend).plan(job, target)
    slots = min(job.max_concurrency or target.max_concurrency, target.max_concurrency)
    needed = (*_needed(target), *expected.requirements)
    warnings = (*_warnings(job, target, targets), *expected.warnings)
    return Planned(job, target, slots, replace(expected, requirements=needed, warnings=warnings))


def _needed(target: Target) -> Iterator[str]:
    """What a job needs for its target, whatever its backend."""
    if target.api_key_env is not None:
        yield f"the key of {target.name}: the variable {target.api_key_env}"
    if target.key_file is not None:
        yield f"the key of {target.name}: the private file {target.key_file}"
    if target.serve is not None:
        yield f"the model that {target.name} serves: assay model fetch {target.serve}"


def _warnings(job: Job, target: Target, targets: Sequence[Target]) -> Iterator[str]:
    """What the coordinator itself has to say of a job, whatever its backend."""
    here = {place(url) for url in target.base_url}
    others = [other for other in targets if other != target and here & set(map(place, other.base_url))]
    if others:
        names = ", ".join(other.name for other in others)
        both = target.max_concurrency + sum(other.max_concurrency for other in others)
        yield f"its endpoint is also that of {names}: it may get {both} requests at once"
    if job.max_concurrency is not None and job.max_concurrency > target.max_concurrency:
        yield f"it may hold {job.max_concurrency} slots, and the target has {target.max_concurrency}"
    if job.limit is not None:
        yield f"the first {job.limit} only: no score of the benchmark"
    if job.repeats > 1 and not job.generation.sampled:
        yield "greedy repeats: on a deterministic server one answer many times"
    if target.api_key_env or target.key_file:
        for url in target.base_url:
            scheme, host, _, _ = place(url)
            if scheme == "http" and host not in LOOPBACK:
                yield f"the key goes to {host} in clear (http)"
