"""From a profile's files and the command's options to a plan; what contradicts itself is refused here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay import dialect, pinset
from assay.dialect.base import ENTRY, SHARED, Dialect
from assay.errors import ConfigurationError
from assay.evaluator import Evaluator, load_evaluator
from assay.paths import relative
from assay.plan import EGRESS, EntryPlan, OtherServer, OwnServer, Plan
from assay.profile import EntryFacts, Profile, RuntimeKind, choose_entries, merge
from assay.run.address import check_url

PLACEHOLDER_IMAGE = "assay-sandbox"  # in a plan of which nothing is run


def make_plan(
    profile: Profile,
    entry: str | None,
    runtime: RuntimeKind,
    image: str | None,
    base_url: str | None = None,
    model: str | None = None,
    max_concurrent: int | None = None,
    limit: int | None = None,
    sampling: Mapping[str, Any] = MappingProxyType({}),
) -> Plan:
    """Build the plan of a profile.

    Args:
        profile: Assay's facts about it.
        entry: One of its entries, or None for all.
        runtime: Where rollouts run; must be one the profile allows.
        image: The sandbox image's id, for Docker.
        base_url: Where a server is already; None for the one that the profile serves or names itself.
        model: The name to ask it for; None for the one that the profile names itself.
        max_concurrent: Rollouts in flight; None for what the entry says.
        limit: Ask only the first so many tasks of each entry; None for all.
        sampling: Sampling options that are laid over the entries' own.

    Raises:
        ConfigurationError: a launch file is missing or wrong, the entry is unknown, the runtime is not
            allowed, or nothing says which server is meant.
    """
    if runtime not in profile.runtimes:
        raise runtime_refused(profile, runtime)
    evaluator = load_evaluator(profile.evaluator)
    spoken = evaluator.native
    speech = dialect.of(spoken.dialect)
    texts = [(facts, launch_texts(profile, facts)) for facts in choose_entries(profile, entry)]
    entries = tuple(
        _over(_entry(profile, facts, launch, speech, max_concurrent), speech, limit, sampling)
        for facts, launch in texts
    )
    native = speech.native(entries[0].launch[SHARED], entries[0].launch[ENTRY])
    return Plan(
        profile=profile.name,
        description=profile.description,
        pins=pinset.current().name,
        evaluator=profile.evaluator,
        dialect=spoken.dialect,
        key_variable=spoken.key_variable,
        runtime=runtime,
        egress=EGRESS[runtime],
        image=image,
        docker=spoken.docker,
        server=_server(profile, entries, native, speech, base_url, model),
        entries=entries,
    )


def launch_texts(profile: Profile, facts: EntryFacts) -> dict[str, str]:
    """The text of an entry's launch files, by their name in a run; ConfigurationError when one is missing."""
    return {name: _read(path) for name, path in launch_paths(profile, facts).items()}


def launch_paths(profile: Profile, facts: EntryFacts) -> dict[str, Path]:
    """Where an entry's launch files are, by the name they have in a run."""
    configs = pinset.current().configs
    return {SHARED: configs / profile.shared, ENTRY: configs / profile.name / f"{facts.name}.toml"}


def runtime_refused(profile: Profile, runtime: RuntimeKind) -> ConfigurationError:
    """The error for a runtime that the profile does not allow."""
    return ConfigurationError(
        f'profile "{profile.name}" does not run on the {runtime} runtime',
        f"it allows: {', '.join(profile.runtimes)}; model-written code must not run on the host",
        "start a Docker engine (apt-get install docker.io), then: eval/scripts/sandbox",
    )


def require_evaluator(plan: Plan) -> Evaluator:
    """The evaluator of a resolved plan, whose description is still the one that the plan was made from.

    Raises:
        ConfigurationError: it is another pin set's plan, or the evaluator is described otherwise.
    """
    current = pinset.current().name
    if plan.pins != current:
        raise ConfigurationError(
            f'the resolved run is of the pin set "{plan.pins}"',
            f'the command works with "{current}"',
            "give the pin set's folder: --pins DIR (none for production)",
        )
    evaluator = load_evaluator(plan.evaluator)
    spoken = evaluator.native
    for what, planned, found in (
        ("dialect", plan.dialect, spoken.dialect),
        ("key_variable", plan.key_variable, spoken.key_variable),
        ("docker", plan.docker, spoken.docker),
    ):
        if planned != found:
            raise ConfigurationError(
                f'the resolved run contradicts the evaluator "{evaluator.name}"',
                f"{what} is {planned}, and evaluator.toml says {found}",
                "check out the commit the run was made from, or run the profile by name",
            )
    return evaluator


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{relative(path)} cannot be read", str(error), "git checkout restores a tracked file"
        ) from error


def _entry(
    profile: Profile,
    facts: EntryFacts,
    launch: dict[str, str],
    speech: Dialect,
    max_concurrent: int | None,
) -> EntryPlan:
    what = f'entry "{facts.name}" of profile "{profile.name}"'
    paths = " + ".join(relative(path) for path in launch_paths(profile, facts).values())
    try:
        native = speech.native(launch[SHARED], launch[ENTRY])
        speech.taskset(native)
    except ValueError as error:
        raise ConfigurationError(f"{what} is not valid", f"{paths}: {error}", "mend that file") from error
    rollouts = 1 if facts.seeds else facts.rollouts
    for name, said, expected in (
        ("rollouts", speech.rollouts(native), rollouts),
        ("tasks", speech.tasks(native) or facts.tasks, facts.tasks),
    ):
        if said != expected:
            raise ConfigurationError(
                f"{what} contradicts profiles.toml",
                f"{paths} asks for {said} {name}, expected {expected}",
                "make the two files agree",
            )
    return EntryPlan(
        name=facts.name,
        tasks=facts.tasks,
        rollouts=facts.rollouts,
        seeds=facts.seeds,
        launch=launch,
        max_concurrent=max_concurrent or speech.concurrent(native) or 1,
    )


def _over(entry: EntryPlan, speech: Dialect, limit: int | None, sampling: Mapping[str, Any]) -> EntryPlan:
    """The entry with fewer tasks or other sampling, where it is asked for."""
    if entry.seeds and "seed" in sampling:
        raise ConfigurationError(
            f'entry "{entry.name}" has a seed for each rollout',
            "a seed for all of them would make its rollouts one",
            "leave the seed out",
        )
    over: dict[str, Any] = {}
    if limit is not None and limit < entry.tasks:
        over = speech.first(limit)
        entry = entry.model_copy(update={"tasks": limit})
    if sampling:
        over = merge(over, speech.sampling(sampling))
    return entry.model_copy(update={"over": over}) if over else entry


def _server(
    profile: Profile,
    entries: tuple[EntryPlan, ...],
    native: dict[str, object],
    speech: Dialect,
    base_url: str | None,
    model: str | None,
) -> OwnServer | OtherServer:
    if profile.serve is not None and base_url is None and model is None:
        return OwnServer(model=profile.serve, slots=max(planned.max_concurrent for planned in entries))
    # A profile that serves its own model names no other server: the address in its shared part is no choice.
    named = native if profile.serve is None else {}
    url = speech.base_url(named) if base_url is None else base_url
    name = named.get("model") if model is None else model
    if url is None or not isinstance(name, str):
        half = base_url is not None or model is not None
        raise ConfigurationError(
            "--base-url and --model belong together"
            if half
            else f'profile "{profile.name}" has no server of its own',
            "",
            "give both: --base-url URL --model NAME, and --key-file when the server wants a key",
        )
    return OtherServer(base_url=check_url(url), model=name)
