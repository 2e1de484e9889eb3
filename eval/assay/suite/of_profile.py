"""A profile as a suite: one target, and a job of the backend `verifiers` for each of its entries.

What is asked and how it is sampled stays in the profile's native files; the jobs name them and say nothing
besides. So one scheduler runs suites and profiles alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from assay.plan import OwnServer, Plan
from assay.planning import PLACEHOLDER_IMAGE, make_plan
from assay.profile import find_profile
from assay.run.key import KEY_FILE_VARIABLES
from assay.suite.job import Job
from assay.suite.suite import Suite
from assay.suite.target import Target

BACKEND = "verifiers"
TARGET = "server"


def of_profile(
    name: str,
    entry: str | None = None,
    base_url: str | None = None,
    model: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Suite:
    """The suite of a profile.

    Args:
        name: The profile.
        entry: One of its entries; None for all.
        base_url: Where a server is already; None for the one that the profile serves or names itself.
        model: The name to ask it for; None for the profile's.
        environ: Variables, one of which may name the key's file.

    Raises:
        ConfigurationError: there is no such profile or entry, or its files contradict themselves.
    """
    profile = find_profile(name)
    runtime = profile.runtimes[0]
    image = PLACEHOLDER_IMAGE if runtime == "docker" else None
    plan = make_plan(profile, entry, runtime, image, base_url, model)
    variables = environ or {}
    named = next((variables[key] for key in KEY_FILE_VARIABLES if variables.get(key)), None)
    suite = of_plan(plan, None if named is None else Path(named))
    return suite if entry is None else suite.model_copy(update={"name": f"{name}.{entry}"})


def of_plan(plan: Plan, key_file: Path | None = None) -> Suite:
    """The suite that asks what a plan asks.

    Args:
        plan: The plan.
        key_file: Holds the key of a server that is already there; a served one has a key of its own.
    """
    server = plan.server
    own = isinstance(server, OwnServer)
    target = Target(
        name=TARGET,
        base_url=() if isinstance(server, OwnServer) else (server.base_url,),
        model=server.model,
        serve=server.model if own else None,
        key_file=None if own else key_file,
        max_concurrency=max(entry.max_concurrent for entry in plan.entries),
    )
    jobs = tuple(
        Job(
            id=entry.name,
            backend=BACKEND,
            dataset=f"{plan.profile}/{entry.name}",
            target=TARGET,
            repeats=entry.rollouts,
            max_concurrency=entry.max_concurrent,
        )
        for entry in plan.entries
    )
    return Suite(
        name=plan.profile, description=plan.description, pins=plan.pins, targets=(target,), jobs=jobs
    )
