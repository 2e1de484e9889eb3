"""Suites as text, written for a test: a small whole one, and the same with something changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.dialect.flat import inline, key
from assay.errors import ConfigurationError
from assay.suite.read import read_suite

WHOLE: Mapping[str, Any] = {
    "description": "two jobs of one target",
    "running": {"max_parallel_jobs": 2},
    "target": {
        "local": {
            "base_url": "http://127.0.0.1:18080/v1",
            "model": "qwen3.6-27b",
            "api_key_env": "MODEL_API_KEY",
            "max_concurrency": 3,
            "request": {"timeout_seconds": 60, "retries": 1},
            "provenance": {"engine": "of 2026-11-29, a1b2c3d4e5f60718293a4b5c6d7e8f9001122334"},
        },
        "nobody": {"protocol": "none", "max_concurrency": 1},
    },
    "defaults": {"target": "local", "generation": {"temperature": 0.6, "extra_body": {"top_k": 20}}},
    "job": [
        {
            "id": "first",
            "backend": "mock",
            "dataset": "arithmetic",
            "generation": {"max_tokens": 16384, "extra_body": {"enable_thinking": True}},
            "backend_args": {"items": 4},
        },
        {
            "id": "second",
            "backend": "mock",
            "dataset": "arithmetic",
            "target": "nobody",
            "repeats": 2,
            "backend_args": {"items": 3},
        },
    ],
    "list": {"one": ["second"], "turned": ["second", "first"]},
}


def dump(value: Mapping[str, Any]) -> str:
    """The TOML text of a document, one line a key."""
    return "".join(f"{key(name)} = {inline(item)}\n" for name, item in value.items())


def changed(*places: tuple[str, object]) -> dict[str, Any]:
    """The whole suite with values put in places: dotted keys, a list's item by its number from 0."""
    whole = copy.deepcopy(dict(WHOLE))
    for place, value in places:
        *above, last = place.split(".")
        table: Any = whole
        for part in above:
            table = table[int(part)] if isinstance(table, list) else table.setdefault(part, {})
        table[int(last) if isinstance(table, list) else last] = value
    return whole


def write(folder: Path, *places: tuple[str, object], name: str = "try.toml") -> Path:
    """A file with the whole suite, changed in those places."""
    path = folder / name
    path.write_text(dump(changed(*places)), "utf-8")
    return path


def refusal(path: Path | str, environ: Mapping[str, str] | None = None) -> str:
    """What is said of a suite that is refused, in one line."""
    with pytest.raises(ConfigurationError) as caught:
        read_suite(str(path), environ or {})
    return str(caught.value)
