"""The native resume recipe, typed as it is printed: where it runs, with what environment and what words.

The program it names is a stand-in that writes down how it was started; that the real evaluator then resumes
is tested in test_run_verifiers.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.errors import VerificationError
from assay.plan import Plan
from assay.run.recipe import Recipe, recipes

RECORDED = Path(__file__).parents[1] / "record/recorded"
KEY = "a key's own text $HOME `id` '\""
ENTRY = {"eval": '[env.taskset]\nid = "q"\n', "vf-eval-v0": '[[eval]]\nenv_id = "q"\n'}
PLACES = {"eval": "traces.jsonl", "vf-eval-v0": "evals/q--m/1f2e3d4c/results.jsonl"}
PROGRAM = """\
#!/bin/sh
pwd -P > "$OUT/directory"
for word in "$@"; do printf '%s\\n' "$word"; done > "$OUT/words"
/usr/bin/env -0 > "$OUT/environment"
/usr/bin/cat org/tiny/README.md > "$OUT/data"
"""


def plan_of(dialect: str, **changed: object) -> Plan:
    entry = {
        "name": "e",
        "tasks": 4,
        "rollouts": 1,
        "launch": {"local.toml": "", "entry.toml": ENTRY[dialect]},
        "max_concurrent": 1,
    }
    value: dict[str, Any] = {
        "profile": "p",
        "description": "d",
        "pins": "production",
        "evaluator": "q",
        "dialect": dialect,
        "key_variable": "QWEN_API_KEY",
        "runtime": "docker",
        "egress": "cut",
        "image": "sha256:0",
        "docker": {"workdir": "/w", "cpu": 1, "memory": 1},
        "server": {"kind": "other", "base_url": "http://127.0.0.1:1/v1", "model": "m"},
        "entries": [entry],
    }
    return Plan.model_validate(value | changed)


def write(run: Path, dialect: str, folder: str = "e", rows: int | None = None) -> dict[str, Any]:
    """What a run leaves of one invocation, as far as a recipe reads it; returns the recorded launch."""
    record = run / folder / PLACES[dialect]
    record.parent.mkdir(parents=True)
    lines = (RECORDED / f"{dialect}.jsonl").read_text("utf-8").splitlines(keepends=True)
    record.write_text("".join(lines[:rows]), "utf-8")
    private = run.parent / "it's private"
    data = run.parent / "the data"
    data.mkdir(exist_ok=True)
    (data / "README.md").write_text("tiny")
    program = run.parent / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (run.parent / "out").mkdir(exist_ok=True)
    launch = run / "provenance/launch" / folder
    launch.mkdir(parents=True)
    words = {
        "eval": [
            "@",
            str(launch / "local.toml"),
            "@",
            str(launch / "overrides.json"),
            "--no-rich",
            "--no-push",
        ],
        "vf-eval-v0": [str(launch / "launch.toml"), "--disable-tui"],
    }
    value = {
        "command": [str(program), *words[dialect]],
        "variables": [],
        "environment": {
            "HOME": str(private / "home"),
            "TMPDIR": str(private / "tmp"),
            "HF_HUB_OFFLINE": "1",
            "OUT": str(run.parent / "out"),
            "ODD": "a b'c\"d$e",
        },
        "key_variable": "QWEN_API_KEY",
        "working_directory": str(private / "work"),
    }
    (launch / "command.json").write_text(json.dumps(value))
    link = {"name": "org/tiny", "target": str(data)}
    (launch / "route.json").write_text(json.dumps({"link": link}))
    (launch / "overrides.json").write_text(json.dumps({"output_dir": str(run)}))
    (launch / "launch.toml").write_text('[[eval]]\n"env_id" = "q"\n')
    return value


def only(run: Path, plan: Plan) -> Recipe:
    (recipe,) = recipes(run, plan, plan.entries[0])
    return recipe


def typed(recipe: Recipe) -> None:
    """Type the recipe, as a user who has the key and much else in his environment."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(recipe.lines)],
        env={**os.environ, "QWEN_API_KEY": KEY, "PYTHONPATH": "/elsewhere", "HF_TOKEN": "mine"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "a run"


@pytest.mark.parametrize("dialect", ["eval", "vf-eval-v0"])
def test_the_recipe_starts_the_command_as_the_run_did_and_with_nothing_else(run: Path, dialect: str) -> None:
    launch = write(run, dialect)
    recipe = only(run, plan_of(dialect))
    for _ in range(2):
        typed(recipe)
    out = run.parent / "out"
    assert (out / "directory").read_text().strip() == launch["working_directory"]
    assert (out / "data").read_text() == "tiny", "the link leads to the data"
    found = dict(item.split("=", 1) for item in (out / "environment").read_text().split("\0") if item)
    assert found.pop("QWEN_API_KEY") == KEY
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):
        found.pop(name, None)
    assert found == launch["environment"]
    assert all(Path(found[name]).is_dir() for name in ("HOME", "TMPDIR"))
    assert KEY not in "\n".join(recipe.lines)
    words = (out / "words").read_text().splitlines()
    if dialect == "eval":
        resolved = str(run / "e/configs/resolved/eval.json")
        assert words == ["@", resolved, "--resume", "--no-rich", "--no-push"]
    else:
        given, tui = words
        assert tui == "--disable-tui"
        record = run / "e/evals/q--m/1f2e3d4c"
        assert Path(given).read_text() == f'[[eval]]\n"env_id" = "q"\nresume_path = "{record}"\n'


def test_what_is_owed_is_what_that_version_would_ask_again(run: Path) -> None:
    """Of the first four rows of 0.3 two are ok; 0.1 keeps a failed row and asks only for what it lacks."""
    write(run, "eval", rows=4)
    assert only(run, plan_of("eval")).owed == 2
    other = run.parent / "other" / "a run"
    write(other, "vf-eval-v0")
    recipe = only(other, plan_of("vf-eval-v0"))
    assert recipe.owed == 0
    assert "this version asks nothing again that failed: 1 row(s) stay as they are" in recipe.notes
    third = run.parent / "third" / "a run"
    write(third, "vf-eval-v0", rows=3)
    assert only(third, plan_of("vf-eval-v0")).owed == 1


def test_each_invocation_that_owes_rollouts_has_a_recipe_and_the_first_where_none_does(run: Path) -> None:
    plan = plan_of("eval")
    entry = plan.entries[0].model_copy(update={"tasks": 2, "rollouts": 3, "seeds": (7, 8, 9)})
    write(run, "eval", "e/seed-7", rows=2)
    write(run, "eval", "e/seed-8", rows=1)
    found = recipes(run, plan, entry)
    assert [(recipe.folder, recipe.owed) for recipe in found] == [("e/seed-8", 1), ("e/seed-9", 2)]
    assert found[1].lines == ()
    assert found[1].notes == ("the evaluator was never started for it",)
    write(run, "eval", "e/seed-9", rows=2)
    done = entry.model_copy(update={"rollouts": 2, "seeds": (7, 9)})
    assert [(recipe.folder, recipe.owed) for recipe in recipes(run, plan, done)] == [("e/seed-7", 0)]


def test_a_run_that_was_moved_and_a_server_that_has_ended_are_told(run: Path) -> None:
    write(run, "eval")
    moved = run.parent / "elsewhere"
    run.rename(moved)
    own = {"kind": "own", "model": "smollm2-135m", "slots": 2}
    recipe = only(moved, plan_of("eval", server=own))
    assert f"the run lay elsewhere: the command resumes {run}/e" in recipe.notes
    assert any("assay serve smollm2-135m --slots 2" in note for note in recipe.notes)


@pytest.mark.parametrize(
    "link",
    [
        {"name": "../up", "target": "/x"},
        {"name": "a/$(id)", "target": "/x"},
        {"name": "a/b", "target": 3},
        [],
        1,
    ],
)
def test_a_link_that_leads_out_of_the_working_directory_is_no_recipe(run: Path, link: object) -> None:
    write(run, "eval")
    (run / "provenance/launch/e/route.json").write_text(json.dumps({"link": link}))
    with pytest.raises(VerificationError, match=r"command\.json cannot be read"):
        recipes(run, plan_of("eval"), plan_of("eval").entries[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("command", "rm"),
        ("command", []),
        ("command", ["\x1b[2J"]),
        ("environment", None),
        ("environment", {"A\nB": "1"}),
        ("environment", {"A; rm -rf x": "1"}),
        ("environment", {"QWEN_API_KEY": "printed"}),
        ("key_variable", "A B"),
        ("key_variable", None),
        ("working_directory", None),
        ("working_directory", "a\nb"),
    ],
)
def test_a_launch_that_cannot_be_typed_is_an_error_and_no_recipe(run: Path, name: str, value: object) -> None:
    launch = write(run, "eval")
    path = run / "provenance/launch/e/command.json"
    path.write_text(json.dumps(launch | {name: value}))
    with pytest.raises(VerificationError, match=r"command\.json cannot be read"):
        recipes(run, plan_of("eval"), plan_of("eval").entries[0])
