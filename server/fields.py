"""A JSON object of a model's directory, field by field: each of the type wanted, or an error naming it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from server.safetensors import CheckpointError
from server.vocabulary import shown

_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fields:
    """An object and where it stands; a field that is null counts as absent."""

    values: Mapping[str, object]
    where: str

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number from `least`; CheckpointError when it is none or absent."""
        value = self._value(name, default)
        if type(value) is not int or not least <= value <= _MOST:
            raise self.wrong(name, f"no whole number from {least} to {_MOST}")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """Return a finite number."""
        value = self._value(name, default)
        if type(value) not in (int, float) or not isinstance(value, int | float) or not _finite(value):
            raise self.wrong(name, "no number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "neither true nor false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "no text")
        return value

    def items(self, name: str) -> list[object]:
        """Return a list; an absent one is empty."""
        value = self._value(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, "no list")
        return value

    def table(self, name: str) -> Fields:
        """Return an object; an absent one is empty."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "no object")
        return Fields(value, f"{self.where}: `{name}`")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def must_be(self, name: str, wanted: object) -> None:
        """Raise CheckpointError unless the field is `wanted`, the one value that is served."""
        value = self._value(name, wanted)
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            raise self.wrong(name, f"not {wanted!r}, which alone is served")

    def wrong(self, name: str, why: str) -> CheckpointError:
        """Return the error of a field that is not what it has to be."""
        if not self.has(name):
            return CheckpointError(f"{self.where} has no `{name}`")
        return CheckpointError(f"{self.where}: `{name}` is {shown(self.values[name])}, {why}")

    def _value(self, name: str, default: object) -> object:
        value = self.values.get(name)
        return default if value is None else value


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
