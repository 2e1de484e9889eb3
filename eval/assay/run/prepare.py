"""Getting ready: the evaluator's environment, the model and the sandbox that a profile needs.

`run` sets up what is missing, so that one command takes a newcomer from a clone to a result. What is there
but not as locked is an error, never repaired behind the user's back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay import models, sandbox, setup
from assay.console import say, step
from assay.errors import PrerequisiteError
from assay.evaluator import load_evaluator
from assay.plan import Plan
from assay.planning import PLACEHOLDER_IMAGE, make_plan, require_evaluator
from assay.profile import Profile, RuntimeKind
from assay.run import route


@dataclass(frozen=True)
class Choice:
    """What the command's options ask for.

    Attributes:
        entry: One entry of the profile, or None for all.
        runtime: Where rollouts run, or None for the first that is there.
        base_url: Where a server is already, or None for the profile's.
        model: The name to ask it for, or None for the profile's.
        max_concurrent: Rollouts in flight, or None for what the entry says.
        limit: The first so many tasks of each entry, or None for all.
        sampling: Sampling options laid over the entries' own.
    """

    entry: str | None = None
    runtime: RuntimeKind | None = None
    base_url: str | None = None
    model: str | None = None
    max_concurrent: int | None = None
    limit: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)


def choose_runtime(profile: Profile, wanted: RuntimeKind | None) -> RuntimeKind:
    """Where rollouts will run: what was asked for, else the first of the profile's that is there.

    Raises:
        PrerequisiteError: the profile needs Docker and none answers.
    """
    if wanted is not None:
        return wanted
    for kind in profile.runtimes:
        if kind != "docker":
            return kind
        if sandbox.engine() is not None:
            return kind
    raise PrerequisiteError(
        f'profile "{profile.name}" needs a Docker engine, and none answers',
        "model-written code must not run on the host, so this profile refuses the host runtime",
        "apt-get install docker.io, start dockerd, then run again",
    )


def sandbox_image(evaluator: str, reach: Callable[[], None]) -> str:
    """The id of an evaluator's sandbox image, built first when there is none.

    Args:
        evaluator: The evaluator.
        reach: Asked before minutes are spent on building: raises when the server is not there.

    Raises:
        PrerequisiteError: no Docker answers, or the image cannot be built.
        VerificationError: there is an image, but not the recorded one.
    """
    if sandbox.engine() is None:
        raise PrerequisiteError(
            "no Docker engine answers", "the sandbox runs in containers", "start dockerd, then run again"
        )
    try:
        return sandbox.check(evaluator).image_id
    except PrerequisiteError as missing:
        reach()
        say(f"assay: {missing.what}; building it")
    with step("building the sandbox image"):
        return sandbox.build(evaluator).image_id


def prepare(profile: Profile, choice: Choice, reach: Callable[[], None]) -> Plan:
    """Set up what is missing and return the plan.

    Args:
        profile: The profile.
        choice: What the command's options ask for.
        reach: As `sandbox_image` asks it.

    Raises:
        AssayError: a choice does not fit the profile, or something cannot be set up.
    """
    runtime = choose_runtime(profile, choice.runtime)
    # Refuse what cannot be planned, and tell all that is missing, before minutes are spent on setting it up.
    plan = draft(profile, choice, runtime, PLACEHOLDER_IMAGE)
    route.require(route.names(plan, load_evaluator(plan.evaluator)))
    setup.ensure(setup.ENVIRONMENTS[profile.evaluator])
    if plan.server.kind == "own":
        models.fetch(plan.server.model)
    image = sandbox_image(profile.evaluator, reach) if runtime == "docker" else None
    return draft(profile, choice, runtime, image)


def draft(profile: Profile, choice: Choice, runtime: RuntimeKind, image: str | None) -> Plan:
    """The plan as it would be with that runtime and image."""
    return make_plan(
        profile,
        choice.entry,
        runtime,
        image if runtime == "docker" else None,
        choice.base_url,
        choice.model,
        choice.max_concurrent,
        choice.limit,
        choice.sampling,
    )


def prepare_again(plan: Plan, reach: Callable[[], None]) -> Plan:
    """Check that a resolved plan can run as it stands, setting up what is missing; returns it unchanged.

    Args:
        plan: The plan.
        reach: As `sandbox_image` asks it.

    Raises:
        ConfigurationError: it is of another pin set, or of another description of its evaluator.
        PrerequisiteError: its data are missing, or it wants another sandbox image than this checkout builds.
        AssayError: something cannot be set up.
    """
    route.require(route.names(plan, require_evaluator(plan)))
    setup.ensure(setup.ENVIRONMENTS[plan.evaluator])
    if plan.server.kind == "own":
        models.fetch(plan.server.model)
    if plan.runtime == "docker":
        image = sandbox_image(plan.evaluator, reach)
        if image != plan.image:
            raise PrerequisiteError(
                f"the resolved run wants the sandbox image {plan.image}",
                f"this checkout has {image}",
                "check out the commit the run was made from, or run the profile by name",
            )
    return plan
