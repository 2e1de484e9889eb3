"""The way of each taskset to its pinned data: by the means the taskset itself offers.

An evaluator's `[[route]]` says which: native options, a link in a fresh working directory (for tasksets that
hardcode a hub name: the `datasets` library prefers a local path of that name), a variable, or the owned hub
cache. Nothing is downloaded here, nothing repaired, and nothing hashed: task data can be gigabytes, so they
are read whole where it counts, when a run freezes its inputs (`assay.run.freeze`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay import data
from assay.errors import ConfigurationError, PrerequisiteError
from assay.evaluator import SNAPSHOT, Evaluator, Route
from assay.plan import EntryPlan, Plan
from assay.profile import merge

ABSENT = Path("/nowhere")


@dataclass(frozen=True)
class Routed:
    """What one taskset is given, so that it finds its data.

    Attributes:
        data: Name in `datasets.lock`; None where the taskset needs none.
        revision: Of the data.
        overrides: Native options.
        environment: Variables of the native command.
        link: A relative path in the working directory, and what it leads to.
    """

    data: str | None = None
    revision: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    link: tuple[str, Path] | None = None

    def directory(self, path: Path) -> Path:
        """A fresh working directory of that path, with the link in it where there is one.

        A directory that is already there is an earlier invocation's: nothing of it may be read.
        """
        if path.exists():
            shutil.rmtree(path)
        path.mkdir(mode=0o700, parents=True)
        if self.link is not None:
            name, target = self.link
            (path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (path / name).symlink_to(target, target_is_directory=True)
        return path

    def describe(self) -> dict[str, Any]:
        """As it stands in a run's provenance."""
        return {
            "data": self.data,
            "revision": self.revision,
            "overrides": dict(self.overrides),
            "environment": dict(self.environment),
            "link": None if self.link is None else {"name": self.link[0], "target": str(self.link[1])},
        }


def names(plan: Plan, evaluator: Evaluator, entries: Sequence[EntryPlan] | None = None) -> tuple[str, ...]:
    """The data that a plan, or some of its entries, need: names in `datasets.lock`, in the entries' order."""
    chosen = plan.entries if entries is None else entries
    routes = (evaluator.route_of(plan.taskset(entry)) for entry in chosen)
    return tuple(dict.fromkeys(route.data for route in routes if route is not None))


def require(wanted: Iterable[str]) -> None:
    """Go on only if all of these data are here, by their files' names and sizes.

    Raises:
        PrerequisiteError: some are not there; the message names all of them and the command for each.
        VerificationError: there is a file of another size, or one that is not pinned.
    """
    missing: list[str] = []
    reasons: list[str] = []
    for name in wanted:
        try:
            data.find(name)
        except PrerequisiteError as error:
            missing.append(name)
            reasons.append(error.what)
    if missing:
        raise PrerequisiteError(
            f"pinned task data are missing: {', '.join(missing)}",
            "; ".join(reasons),
            data.command(" ".join(missing)),
        )


def to_data(evaluator: Evaluator, taskset: str) -> Routed:
    """What the taskset is given.

    Raises:
        AssayError: the data are not there, whole by names and sizes.
    """
    route = evaluator.route_of(taskset)
    if route is None:
        return Routed()
    place = data.find(route.data)
    return _routed(route, place.path, place.hub, place.revision)


def to_nowhere(evaluator: Evaluator, taskset: str) -> Routed:
    """What the taskset would be given, for a validation that reads no data."""
    route = evaluator.route_of(taskset)
    return Routed() if route is None else _routed(route, ABSENT / route.data, ABSENT / "hub", None)


def declared(evaluator: Evaluator, taskset: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Of recorded overrides, what the taskset's route may have set; where the data lay is the machine's."""
    route = evaluator.route_of(taskset)
    found: dict[str, Any] = {}
    for dotted in route.set if route is not None else ():
        value: Any = recorded
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            found = merge(found, nested(dotted, value))
    return found


def nested(dotted: str, value: str) -> dict[str, Any]:
    """`{"a": {"b": value}}` for "a.b"."""
    first, _, rest = dotted.partition(".")
    return {first: nested(rest, value) if rest else value}


def _routed(route: Route, snapshot: Path, hub: Path | None, revision: str | None) -> Routed:
    if route.hub and hub is None:
        raise ConfigurationError(
            f'the data "{route.data}" lie in no hub cache', "its route wants one", "mend evaluator.toml"
        )
    overrides: dict[str, Any] = {}
    for dotted, value in route.set.items():
        overrides = merge(overrides, nested(dotted, value.replace(SNAPSHOT, str(snapshot))))
    environment = {name: value.replace(SNAPSHOT, str(snapshot)) for name, value in route.environment.items()}
    if route.hub:
        environment["HF_HUB_CACHE"] = str(hub)
    return Routed(
        data=route.data,
        revision=revision,
        overrides=overrides,
        environment=environment,
        link=None if route.link is None else (route.link, snapshot),
    )
