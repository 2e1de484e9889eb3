"""How an entry was asked: its sampling and its limits, out of the evaluator's own configuration.

A score is of a model asked so; what limits it stands beside it. Whether the rollouts of a task can differ at
all follows from here too: at temperature 0, or with one seed for all of them, nothing makes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")
V0 = "vf-eval-v0"
V0_SHORT = ("temperature", "max_tokens")


def sampling(dialect: str, native: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling options of an entry, flat, as they reach the server; empty where none is given.

    Args:
        dialect: What the configuration's keys mean.
        native: The evaluator's configuration.
    """
    given = table(native) if dialect == V0 else _table(native, "sampling")
    flat = _table(given, "extra_body") | {
        name: value for name, value in given.items() if name != "extra_body"
    }
    return {name: _plain(flat[name]) for name in sorted(flat)}


def table(native: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling options of Verifiers 0.1 as it resolves them.

    There the two tables are one, and the short keys count where the table says nothing.
    """
    short = {name: native[name] for name in V0_SHORT if name in native}
    return short | _table(native, "sampling") | _table(native, "sampling_args")


def limits(dialect: str, native: Mapping[str, Any]) -> dict[str, Any]:
    """What may end a rollout before its answer, besides the tokens of one call; empty where nothing does."""
    if dialect == V0:
        return {}
    agent = _table(native, "env", "agent")
    return {name: _plain(agent[name]) for name in LIMITS if agent.get(name) is not None}


def may_differ(asked: Mapping[str, Any], seeds: bool) -> bool:
    """Whether the rollouts of a task are samples of their own.

    Args:
        asked: The sampling options.
        seeds: Whether each rollout has a seed of its own.
    """
    temperature = asked.get("temperature")
    random = not isinstance(temperature, bool) and isinstance(temperature, int | float) and temperature > 0
    return random and (seeds or asked.get("seed") is None)


def words(asked: Mapping[str, Any], limited: Mapping[str, Any]) -> str:
    """Sampling and limits on one line, e.g. "max_tokens 32768, temperature 0"."""
    return ", ".join(f"{name} {_word(value)}" for name, value in {**asked, **limited}.items())


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_word(inner)}" for name, inner in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(value: Mapping[str, Any], *path: str) -> dict[str, Any]:
    for key in path:
        below = value.get(key)
        value = below if isinstance(below, Mapping) else {}
    return dict(value)


def _plain(value: Any) -> Any:
    """A value of TOML as one of JSON: what JSON has no form of becomes its text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)
