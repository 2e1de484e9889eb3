"""What is asked for, as written in the TOML, checked against the library before anything is generated.

A selection is complete: both seeds, the hash seed, the number of worked examples, the prompt's name, and for
every family its size and *every* parameter of its generator, so that no default of the library stands
silently behind a score. Whatever the library does not know is an error that names it and the nearest name.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import DATASETS
from reasoning_gym.utils import SYSTEM_PROMPTS

SET_ELSEWHERE = frozenset({"seed", "size"})
"""Generator fields that the selection sets itself, never `parameters`."""


class SelectionError(ValueError):
    """The selection names something the library does not know, or leaves something out."""


@dataclass(frozen=True)
class Family:
    """One generator of the library and how much is drawn from it.

    Attributes:
        name: The generator's registered name, which is also the family's.
        size: Tasks to draw, at least 1.
        parameters: Every field of the generator's configuration but its seed and size, as plain TOML values.
    """

    name: str
    size: int
    parameters: Mapping[str, Any]

    def config(self, seed: int, size: int) -> Any:
        """The library's own configuration object; SelectionError when a name or value does not fit it."""
        if self.name not in DATASETS:
            raise SelectionError(f"unknown family {self.name!r}{nearest(self.name, DATASETS)}")
        config_type = DATASETS[self.name][1]
        defaults = {field.name: _default(field) for field in dataclasses.fields(config_type)}
        for name in self.parameters:
            if name in SET_ELSEWHERE:
                raise SelectionError(
                    f"{self.name}.{name} is not a parameter: set `size` and the seeds instead"
                )
            if name not in defaults:
                raise SelectionError(
                    f"unknown parameter {self.name}.{name}{nearest(name, defaults.keys() - SET_ELSEWHERE)}"
                )
        missing = [
            f"{name} = {default!r}"
            for name, default in defaults.items()
            if default is not None and name not in SET_ELSEWHERE and name not in self.parameters
        ]
        if missing:
            raise SelectionError(
                f"{self.name}: every parameter is written down; missing, with the library's defaults: "
                + ", ".join(missing)
            )
        values = {
            name: _library_value(value, defaults[name], f"{self.name}.{name}")
            for name, value in self.parameters.items()
        }
        try:
            config = config_type(seed=seed, size=size, **values)
            config.validate()
        except (AssertionError, TypeError, ValueError) as error:
            raise SelectionError(f"{self.name}: the library refuses these parameters: {error}") from error
        return config


@dataclass(frozen=True)
class Selection:
    """Everything that decides the tasks: equal selections give equal tasks in any process.

    Attributes:
        prompt: A name in the library's `SYSTEM_PROMPTS`.
        seed: The seed of the tasks.
        example_seed: The seed of the worked examples; another than `seed`.
        hash_seed: The PYTHONHASHSEED of the process that generates. Some generators of the library
            (isomorphic_strings, ransom_note, word_ladder) iterate over sets of strings.
        n_shot: Worked examples before each task, as earlier turns; 0 for none.
        families: Generators, in the order their tasks are asked.
    """

    prompt: str
    seed: int
    example_seed: int
    hash_seed: int
    n_shot: int
    families: tuple[Family, ...]

    def __post_init__(self) -> None:
        if self.prompt not in SYSTEM_PROMPTS:
            raise SelectionError(f"unknown prompt {self.prompt!r}{nearest(self.prompt, SYSTEM_PROMPTS)}")
        if self.seed == self.example_seed:
            raise SelectionError(f"seed and example_seed are both {self.seed}: they must differ")
        if not 0 <= self.hash_seed < 2**32:
            raise SelectionError(f"hash_seed {self.hash_seed} is outside 0 to 4294967295")
        if self.n_shot < 0:
            raise SelectionError(f"n_shot {self.n_shot} is negative")
        if not self.families:
            raise SelectionError("no families: name at least one generator")
        names = [family.name for family in self.families]
        for family in self.families:
            if names.count(family.name) > 1:
                raise SelectionError(f"family {family.name!r} is named twice: its task keys would collide")
            if family.size < 1:
                raise SelectionError(f"{family.name}: size {family.size} is below 1")
            family.config(self.seed, family.size)

    @property
    def system_prompt(self) -> str:
        """The library's text of that name, unchanged."""
        return str(SYSTEM_PROMPTS[self.prompt])

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Selection:
        """The selection in a TOML table `[env.taskset]`, its `id` aside; SelectionError naming the fault."""
        known = {field.name for field in dataclasses.fields(cls)}
        given = {name: value for name, value in values.items() if name != "id"}
        _same_names(given, known, "")
        families = []
        for entry in given["families"]:
            _same_names(entry, {field.name for field in dataclasses.fields(Family)}, "families.")
            families.append(Family(**entry))
        return cls(**{**given, "families": tuple(families)})


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or the empty string when none is close."""
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _same_names(given: Mapping[str, Any], known: set[str], where: str) -> None:
    """SelectionError unless `given` has exactly the known names."""
    for name in given:
        if name not in known:
            raise SelectionError(f"unknown key {where}{name}{nearest(name, known)}")
    for name in sorted(known - given.keys()):
        raise SelectionError(f"missing key {where}{name}")


def _default(field: dataclasses.Field[Any]) -> Any:
    """The field's default value, or None when it has none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _library_value(value: Any, default: Any, name: str) -> Any:
    """A TOML value in the type of the library's default, such as an enumeration, a tuple or a date."""
    if default is None:
        return value
    if dataclasses.is_dataclass(default) and not isinstance(default, type) and isinstance(value, Mapping):
        fields = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
        _same_names(value, set(fields), f"{name}.")
        return type(default)(
            **{key: _library_value(value[key], fields[key], f"{name}.{key}") for key in fields}
        )
    if isinstance(default, list | tuple) and isinstance(value, list | tuple):
        sample = default[0] if default else None
        return type(default)(_library_value(item, sample, name) for item in value)
    try:
        if isinstance(default, enum.Enum):
            return type(default)(value)
        if isinstance(default, datetime.date | datetime.time) and isinstance(value, str):
            return type(default).fromisoformat(value)
    except ValueError as error:
        raise SelectionError(f"{name}: {error}") from error
    numeric = isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
    if numeric or type(value) is type(default):
        return value
    raise SelectionError(
        f"{name} is {value!r}: the library wants {type(default).__name__}, as in {default!r}"
    )
