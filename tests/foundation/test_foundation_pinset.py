"""Pin sets: production unless another is named; what a set lacks is production's; nothing is shared back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import pinset
from assay.errors import ConfigurationError
from assay.paths import CACHE, CONFIGS, EVAL, EVALUATORS, OWNED, ROOT, RUNTIME, owned_directory


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty pin set named "other", inside the checkout as a set must be."""
    path = owned_directory(CACHE / "tests" / tmp_path.name / str(os.getpid()))
    (path / "pins.toml").write_text('name = "other"\n')
    yield path
    subprocess.run(["rm", "-rf", path.parent], check=True)


@pytest.fixture
def chosen(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_PINS", str(directory))
    return directory


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_choice_everything_is_the_checkouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_PINS", raising=False)
    pins = pinset.current()
    assert pins.name == "production"
    assert pins.file("models.lock") == ROOT / "models.lock"
    assert pins.runtime_file("images.lock") == RUNTIME / "images.lock"
    assert pins.evaluator("verifiers") == EVALUATORS / "verifiers"
    assert pins.environment("verifiers") == EVALUATORS / "verifiers/.venv"
    assert (pins.configs, pins.sources, pins.data) == (CONFIGS, EVAL / ".sources", EVAL / ".data")


def test_a_set_replaces_only_what_it_holds(chosen: Path) -> None:
    lock = write(chosen / "datasets.lock", "")
    pins = write(chosen / "chat.pins", "")
    home = write(chosen / "evaluators/own/evaluator.toml", "").parent
    found = pinset.current()
    assert found.name == "other"
    assert found.file("datasets.lock") == lock
    assert found.file("models.lock") == ROOT / "models.lock"
    assert found.runtime_file("chat.pins") == pins
    assert found.runtime_file("images.lock") == RUNTIME / "images.lock"
    assert found.evaluator("own") == home
    assert found.evaluator("verifiers") == EVALUATORS / "verifiers"
    assert {"own", "verifiers"} <= set(found.evaluators())
    assert found.configs == CONFIGS
    write(chosen / "configs/profiles.toml", "")
    assert found.configs == chosen / "configs"


def test_what_is_made_from_a_set_lies_apart(chosen: Path) -> None:
    write(chosen / "evaluators/verifiers/evaluator.toml", "")
    found = pinset.current()
    made = OWNED / "pins/other"
    assert (found.sources, found.data) == (made / "sources", made / "data")
    assert found.environment("verifiers") == made / "environments/verifiers"


def test_an_environment_that_the_set_does_not_change_is_productions(chosen: Path) -> None:
    assert pinset.current().environment("verifiers") == EVALUATORS / "verifiers/.venv"


def test_the_option_is_taken_out_wherever_it_stands(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PINS", "")
    for words in (
        ["--pins", str(directory), "run", "x"],
        ["run", f"--pins={directory}", "x"],
        ["run", "x", "--pins", str(directory)],
    ):
        monkeypatch.setenv("ASSAY_PINS", "")
        assert pinset.choose(words) == ["run", "x"]
        assert pinset.current().name == "other"


def test_a_relative_directory_stays_the_same_for_a_child_elsewhere(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory.parent)
    monkeypatch.setenv("ASSAY_PINS", directory.name)
    pinset.choose([])
    monkeypatch.chdir("/")
    assert pinset.current().directory == directory


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('name = "production"', "only the checkout itself is production"),
        ('name = "../escape"', "lower-case letters"),
        ("name = 3", "lower-case letters"),
        ("names = 3", "does not name a pin set"),
        ("name =", "does not name a pin set"),
    ],
)
def test_a_set_that_does_not_name_itself_is_refused(directory: Path, text: str, reason: str) -> None:
    (directory / "pins.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=reason):
        pinset.read.__wrapped__(directory)


def test_a_set_outside_the_checkout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").write_text('name = "other"\n')
    with pytest.raises(ConfigurationError, match="no pin set of this checkout"):
        pinset.read(tmp_path)
    (inside := owned_directory(CACHE / "tests") / "link").unlink(missing_ok=True)
    inside.symlink_to(tmp_path)
    try:
        with pytest.raises(ConfigurationError, match="no pin set of this checkout"):
            pinset.read(inside)
    finally:
        inside.unlink()


@pytest.mark.parametrize("words", [["--pins"], ["--pins="], ["--pins", "/nowhere"]])
def test_the_command_refuses_a_set_that_is_none(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assay.cli", "status", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "next: " in done.stderr


def test_commands_are_told_as_they_must_be_typed_under_the_set(chosen: Path) -> None:
    option = f"--pins {chosen.relative_to(ROOT)}"
    assert pinset.typed("mv a b && eval/scripts/setup --sources-only, then eval/scripts/data x") == (
        f"mv a b && eval/scripts/setup {option} --sources-only, then eval/scripts/data {option} x"
    )
    once = pinset.typed("eval/scripts/run smoke")
    assert pinset.typed(once) == once == f"eval/scripts/run {option} smoke"
    assert pinset.typed("eval/scripts/audit RUN") == "eval/scripts/audit RUN"


def test_under_production_commands_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_PINS", raising=False)
    assert pinset.typed("eval/scripts/setup x") == "eval/scripts/setup x"


def test_an_error_names_the_command_with_the_set_in_force(directory: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "assay.cli", "setup", "direct", "--check", "--pins", str(directory), "--json"],
        env={**os.environ, "ASSAY_PINS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    typed = f"eval/scripts/setup --pins {directory.relative_to(ROOT)} direct"
    assert ended.returncode == 3
    assert f"next: {typed}\n" in ended.stderr
    assert json.loads(ended.stdout)["error"]["next"] == typed


def test_a_set_that_is_gone_is_told_with_how_to_choose_none() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "assay.cli", "doctor"],
        env={**os.environ, "ASSAY_PINS": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, "unset ASSAY_PINS" in ended.stderr) == (2, True)
