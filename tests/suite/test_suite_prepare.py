"""Before a suite's run: what may be set up is set up, and what only the user can give is asked for first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from written import write

from assay.backends import registry
from assay.backends.mock import Mock
from assay.errors import ConfigurationError, PrerequisiteError
from assay.suite.job import Job
from assay.suite.key import refuse_own_keys
from assay.suite.prepare import prepare
from assay.suite.read import read_suite
from assay.suite.target import Target

KEYED = {"MODEL_API_KEY": "canary-key-0451"}


class Needing(Mock):
    """A mock that needs an environment, which `prepare` makes, and perhaps data."""

    def __init__(self, data: Sequence[str] = ()) -> None:
        self.wanted = data
        self.told: list[str] = []

    def data(self, job: Job) -> Sequence[str]:
        return self.wanted

    def prepare(self, job: Job, target: Target) -> None:
        self.told.append(f"prepare {job.id}")

    def require(self, job: Job, target: Target, environ: Mapping[str, str]) -> None:
        if f"prepare {job.id}" not in self.told:
            raise PrerequisiteError("its environment is not set up", "", "")
        self.told.append(f"require {job.id}")


def with_backend(monkeypatch: pytest.MonkeyPatch, backend: Needing) -> Needing:
    monkeypatch.setattr(registry, "find", lambda name: backend)
    return backend


def test_what_is_missing_is_set_up_for_each_job_before_anything_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = read_suite(str(write(tmp_path)), KEYED).suite
    backend = with_backend(monkeypatch, Needing())
    prepare(suite, KEYED)
    assert backend.told == ["prepare first", "prepare second", "require first", "require second"]


def test_a_missing_key_is_told_before_anything_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = read_suite(str(write(tmp_path)), {}).suite
    backend = with_backend(monkeypatch, Needing())
    with pytest.raises(ConfigurationError, match="MODEL_API_KEY is not set"):
        prepare(suite, {})
    assert backend.told == []


def test_missing_data_are_told_before_anything_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = read_suite(str(write(tmp_path)), KEYED).suite
    backend = with_backend(monkeypatch, Needing(["aime24"]))
    with pytest.raises(PrerequisiteError, match="aime24"):
        prepare(suite, KEYED)
    assert backend.told == []


def test_a_key_that_looks_like_a_word_is_found_in_its_own_suite_and_in_a_comment(tmp_path: Path) -> None:
    asked = read_suite(str(write(tmp_path)), KEYED)
    key = KEYED["MODEL_API_KEY"]
    refuse_own_keys(asked.suite, asked.text, KEYED)
    described = asked.suite.model_copy(update={"description": f"with {key}"})
    for suite, text in ((described, asked.text), (asked.suite, f"{asked.text}# {key}\n")):
        with pytest.raises(ConfigurationError, match="holds the key of its target") as refused:
            refuse_own_keys(suite, text, KEYED)
        assert key not in str(refused.value)
    refuse_own_keys(described, asked.text, {"MODEL_API_KEY": "description"})
