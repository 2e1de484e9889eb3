"""Profiles: what is asked, as native evaluator TOML, and what Assay must know besides.

`eval/configs/<profile>/<entry>.toml` is the evaluator's own configuration and goes to it unchanged, over the
part that entries share (`eval/configs/local.toml`, or the one that the profile names). `profiles.toml` holds
the few facts that are Assay's: the evaluator, the runtimes a profile may use, whether it serves its own
model, and how many tasks and rollouts each entry must yield. Another pin set may bring its own folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay import pinset
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import relative

# "none": the evaluator starts no program for a rollout, so there is nothing to put anywhere.
RuntimeKind = Literal["docker", "subprocess", "none"]
SEGMENT = r"^[a-z0-9][a-z0-9-]{0,63}$"
SHARED = r"^([a-z0-9][a-z0-9-]{0,63}/)?[a-z0-9][a-z0-9-]{0,63}\.toml$"


class EntryFacts(BaseModel):
    """One entry of a profile.

    Attributes:
        name: One path segment; the entry's TOML is `<name>.toml` in the profile's folder.
        tasks: Tasks it must yield.
        rollouts: Rollouts of each task.
        first_seed: Where each rollout has a seed of its own, that of the first; the next ones follow.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=SEGMENT)
    tasks: int = Field(gt=0)
    rollouts: int = Field(gt=0)
    first_seed: int | None = Field(default=None, ge=0)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Each rollout's seed; empty where the entry gives none."""
        if self.first_seed is None:
            return ()
        return tuple(range(self.first_seed, self.first_seed + self.rollouts))


class Profile(BaseModel):
    """Assay's own facts about a profile.

    Attributes:
        name: One path segment; the profile's folder.
        description: What it is, in one sentence, printed with every result.
        evaluator: Folder below `eval/evaluators/`.
        runtimes: Where rollouts may run, the preferred first.
        shared: The part that its entries share, below `eval/configs/`.
        agentic: The model is given tools: it never belongs to another profile's result.
        serve: Name in `models.lock` of the model the run serves itself; None when the server must already
            be there.
        entry: Its entries, in the order they run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=SEGMENT)
    description: str
    evaluator: str = Field(pattern=SEGMENT)
    runtimes: tuple[RuntimeKind, ...] = Field(min_length=1)
    shared: str = Field(default="local.toml", pattern=SHARED)
    agentic: bool = False
    serve: str | None = None
    entry: tuple[EntryFacts, ...] = Field(min_length=1)


def load_profiles(configs: Path | None = None) -> dict[str, Profile]:
    """Every profile of `profiles.toml`, by name.

    Args:
        configs: Where it is; the pin set's when None.

    Raises:
        ConfigurationError: the file is missing, is not TOML, or has a field that does not belong.
    """
    path = (configs or pinset.current().configs) / "profiles.toml"
    profiles = {}
    for name, facts in read_toml(path).items():
        try:
            profiles[name] = Profile.model_validate({"name": name, **facts})
        except (ValidationError, TypeError) as error:
            raise ConfigurationError(
                f"profile {name!r} in {relative(path)} is not valid",
                describe(error, Profile, EntryFacts),
                f"edit {relative(path)}",
            ) from error
    return profiles


def find_profile(name: str, configs: Path | None = None) -> Profile:
    """The profile of that name; ConfigurationError, with the nearest name, when there is none."""
    profiles = load_profiles(configs)
    if name not in profiles:
        raise ConfigurationError(
            f'there is no profile "{name}"', nearest(name, profiles), "eval/scripts/run PROFILE [ENTRY]"
        )
    return profiles[name]


def choose_entries(profile: Profile, entry: str | None) -> tuple[EntryFacts, ...]:
    """The profile's entries, or the one that was named; ConfigurationError when it has no such entry."""
    found = tuple(facts for facts in profile.entry if entry in (None, facts.name))
    if not found:
        raise ConfigurationError(
            f'profile "{profile.name}" has no entry "{entry}"',
            nearest(str(entry), (facts.name for facts in profile.entry)),
            f"eval/scripts/run {profile.name} [ENTRY]",
        )
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML document in a file; ConfigurationError when it is missing or is not TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{relative(path)} cannot be read", f"{error.strerror}", "git checkout restores a tracked file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{relative(path)} is not valid TOML", str(error), "mend that line"
        ) from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Layer one configuration over another: tables are merged, anything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def describe(error: Exception, *models: type[BaseModel]) -> str:
    """A validation error in one line: each field's path and what is wrong with it.

    Args:
        error: The error.
        models: Whose fields an unknown key may have been meant for.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    known = {name for model in models for name in model.model_fields}
    parts = []
    for item in error.errors():
        unknown = item["type"] == "extra_forbidden" and known
        said = f"unknown key; {nearest(str(item['loc'][-1]), known)}" if unknown else item["msg"]
        parts.append(f"{'.'.join(str(part) for part in item['loc'])}: {said}")
    return "; ".join(parts)
