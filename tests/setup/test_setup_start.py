"""What a run needs is known from its words, and a slip in them costs nobody an evaluator's set-up."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import PrerequisiteError
from assay.paths import ROOT
from assay.setup import named, require
from assay.setup.start import NEEDS, evaluator_of


@pytest.fixture(autouse=True)
def production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_PINS", raising=False)


@pytest.mark.parametrize(
    ("words", "evaluator"),
    [
        ("demo", "verifiers"),
        ("--dry-run quick", "prime-envs"),
        ("quick aime25 --dry-run", "prime-envs"),
        ("quick --dry-run aime25", "prime-envs"),
        ("direct-smoke", "direct"),
    ],
)
def test_the_evaluator_of_a_profile_is_made_beside_the_first_environment(words: str, evaluator: str) -> None:
    assert evaluator_of(words.split()) == [evaluator]


@pytest.mark.parametrize(
    "words", ["", "qick", "--dry-run", "quick aime99", "quick aime99 --dry-run", "x.json"]
)
def test_a_slip_is_told_before_an_evaluator_is_made(words: str) -> None:
    assert evaluator_of(words.split()) == []


def test_a_resolved_run_names_its_evaluator(tmp_path: Path) -> None:
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps({"evaluator": "direct"}))
    assert evaluator_of([str(path)]) == ["direct"]
    for text in ("[]", "{}", '{"evaluator": "../x"}', "no JSON", '{"evaluator": []}'):
        path.write_text(text)
        assert evaluator_of([str(path)]) == []


def test_an_environment_that_was_made_elsewhere_is_not_taken_for_this_one(tmp_path: Path) -> None:
    here = named(["assay"])[0]
    require(here)
    absent = replace(here, directory=tmp_path / "absent")
    moved = replace(here, directory=tmp_path / "moved")
    moved.directory.mkdir()
    shutil.copy(here.stamp, moved.stamp)
    for environment, why in ((absent, "does not exist yet"), (moved, f"was made at {here.directory}")):
        with pytest.raises(PrerequisiteError, match=re.escape(why)) as caught:
            require(environment)
        assert caught.value.next == "eval/scripts/setup assay"


def test_every_script_starts_in_an_environment_but_those_that_need_none() -> None:
    scripts = {path.name for path in (ROOT / "eval" / "scripts").iterdir() if path.suffix != ".sh"}
    assert scripts - NEEDS.keys() == {"setup", "doctor"}
