"""Packages of pinned sources: installed editable only when what they build is what was recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from upstream import EVALUATOR, PROJECT, World, as_it_was, make_world

from assay.setup.environments import Editable
from assay.setup.metadata import differences, spelling

pytestmark = pytest.mark.slow

MODULE = "environments/counting/counting/__init__.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A checkout whose evaluator was set up from its source."""
    world = make_world(tmp_path_factory.mktemp("made") / "world")
    done = world.setup()
    assert done.returncode == 0, done.stderr
    return world


@pytest.fixture
def whole(made: World) -> Iterator[World]:
    with as_it_was(made) as found:
        yield found


@pytest.fixture
def bare(tmp_path: Path) -> World:
    return make_world(tmp_path / "world")


def installed(world: World) -> list[str]:
    return sorted(path.name for path in world.environment.glob("lib/python3.*/site-packages/*.dist-info"))


def refuse(world: World, *reasons: str) -> None:
    """A set-up fails, says why, installs nothing of the source, and leaves no environment that counts."""
    done = world.setup()
    assert done.returncode == 5, done.stderr
    for reason in reasons:
        assert reason in done.stderr, done.stderr
    assert "counting-0.1.0.dist-info" not in installed(world)
    assert not (world.environment / "assay-environment.json").exists()
    assert world.setup("--check").returncode == 3


def test_a_set_up_fetches_builds_and_checks_and_says_what_it_used(whole: World) -> None:
    done = whole.setup("--check", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    state, source = told["environments"][0], told["sources"][0]
    assert state["versions"] == {"counting": "0.1.0", "hatchling": "1.0", "tinypure": "1.0"}
    assert source["revision"] == whole.upstream.revisions["second"]
    assert set(told["programs"]["upstream"]) == {"verify"}
    assert "environment upstream" in done.stderr or "upstream: " in done.stdout


def test_the_package_is_the_one_in_the_source(whole: World) -> None:
    done = whole.tiny.run(
        "eval/evaluators/upstream/.venv/bin/python", "-B", "-c", "import counting; print(counting.__file__)"
    )
    assert done.stderr == ""
    assert "counting" in (whole.environment.glob("lib/python3.*/site-packages/_counting.pth").__next__()).name


def test_a_version_other_than_the_recorded_one_is_not_installed(bare: World) -> None:
    bare.describe('version = "0.1.0"', 'version = "0.1.1"')
    refuse(bare, "counting builds other metadata", "its version is 0.1.0, recorded is 0.1.1")


def test_another_name_is_not_installed(bare: World) -> None:
    bare.describe('name = "counting"', 'name = "counts"')
    refuse(bare, "its name is counting, recorded is counts")


def test_requirements_other_than_the_recorded_ones_are_not_installed(bare: World) -> None:
    bare.describe('"tinypure>=1.0"', '"tinypure>=0.9", "more"')
    refuse(
        bare,
        "it requires tinypure >=1.0, which is not recorded",
        "it does not require tinypure>=0.9 any more",
        "it does not require more any more",
    )


def test_a_source_that_builds_with_what_is_not_locked_is_not_run(bare: World) -> None:
    text = PROJECT.replace(
        'build-backend = "hatchling.build"', 'build-backend = "backend"\nbackend-path = ["."]'
    )
    path = "environments/counting"
    bare.pin(
        bare.upstream.commit(
            "other backend",
            {f"{path}/pyproject.toml": text, f"{path}/backend.py": "raise SystemExit('it ran')\n"},
        )
    )
    refuse(bare, "counting builds with 'backend'", "only hatchling.build is locked")


def test_a_build_that_leaves_a_file_in_the_source_is_refused(bare: World) -> None:
    text = PROJECT + '\n[tool]\nleaves = "left.py"\n'
    bare.pin(bare.upstream.commit("leaves", {"environments/counting/pyproject.toml": text}))
    done = bare.setup()
    assert done.returncode == 5
    assert "environments/counting/left.py is not of the commit" in done.stderr
    assert not (bare.environment / "assay-environment.json").exists()


def test_a_program_that_is_not_the_pinned_one_is_refused(bare: World) -> None:
    bare.pin(bare.upstream.revisions["second"], digest="c" * 64)
    done = bare.setup()
    assert done.returncode == 5
    assert "the program verify (envs:environments/counting/verify.py) is not the pinned one" in done.stderr
    assert f"pinned is {'c' * 64}" in done.stderr
    assert not (bare.environment / "assay-environment.json").exists()


def test_a_program_without_a_digest_is_bad_configuration(bare: World) -> None:
    lock = bare.tiny.root / "prime-envs.lock"
    lock.write_text(lock.read_text().partition("[[program]]")[0])
    done = bare.setup()
    assert done.returncode == 2
    assert "the program verify of upstream has no digest" in done.stderr


def test_a_source_that_was_edited_after_the_set_up_is_refused_by_the_next(whole: World) -> None:
    (whole.source / MODULE).write_text("answer = 43\n")
    for words in ((), ("--check",)):
        done = whole.setup(*words)
        assert done.returncode == 5
        assert f"{MODULE} is edited" in done.stderr
    assert (whole.source / MODULE).read_text() == "answer = 43\n"


def test_a_source_that_is_gone_is_fetched_again(whole: World) -> None:
    shutil.rmtree(whole.source)
    done = whole.setup("--check")
    assert done.returncode == 3
    assert "the source envs is not here" in done.stderr
    done = whole.setup()
    assert done.returncode == 0, done.stderr
    assert whole.setup("--check").returncode == 0


def test_new_pins_make_the_environment_stale(whole: World) -> None:
    whole.pin(whole.upstream.commit("third", {"README.md": "new\n"}))
    done = whole.setup("--check")
    assert done.returncode == 3
    assert "source envs changed" in done.stderr
    path = whole.tiny.root / "eval/evaluators/upstream/evaluator.toml"
    whole.pin(whole.upstream.revisions["second"])
    path.write_text(EVALUATOR.replace('"tinypure>=1.0"', '"tinypure>=1.1"'))
    done = whole.setup("--check")
    assert done.returncode == 3
    assert "editables changed" in done.stderr


def test_a_package_that_was_replaced_by_one_from_elsewhere_is_told(whole: World) -> None:
    (info,) = whole.environment.glob("lib/python3.*/site-packages/counting-0.1.0.dist-info")
    (info / "direct_url.json").write_text('{"url": "file:///elsewhere", "dir_info": {"editable": true}}')
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "counting is not installed from eval/.sources/envs/environments/counting" in done.stderr


def test_where_one_python_is_not_here_the_other_environments_are_made(bare: World) -> None:
    bare.describe('python = ">=3.11,<3.14"', 'python = "==3.99.*"')
    done = bare.tiny.run("eval/scripts/setup", "upstream", "assay")
    assert done.returncode == 3
    assert "no usable Python 3.99 was found" in done.stderr
    assert "eval/scripts/setup NAME --python P" in done.stderr
    assert bare.tiny.stamp.is_file()
    assert not bare.source.exists()


def test_where_one_source_cannot_be_had_the_other_environments_are_made(bare: World, tmp_path: Path) -> None:
    done = bare.tiny.run("eval/scripts/setup", "upstream", "assay", "--mirror", str(tmp_path))
    assert done.returncode == 3
    assert "does not give the source envs" in done.stderr
    assert bare.tiny.stamp.is_file()


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("a>=1,<2", "A <2, >=1", True),
        ("a[x,y]", "a[Y, x]", True),
        ("a_b", "a-B", True),
        ("a (>=1)", "a>=1", True),
        ("a; python_version<'3.11'", 'a ; python_version < "3.11"', True),
        ("a; (b >= '3') and extra == 'c'", "a ; b >= '3' and extra == 'c'", True),
        ("a; b > '1' and (c == '2' or d == '3')", "a; b > '1' and c == '2' or d == '3'", False),
        ("a>=1", "a>=1.0", False),
        ("a", "a[x]", False),
        ("a; extra == 'x'", "a", False),
        ("a==1", "a===1", False),
    ],
)
def test_requirements_are_compared_by_meaning_not_by_spelling(one: str, other: str, equal: bool) -> None:
    assert (spelling(one) == spelling(other)) is equal


def test_each_difference_of_metadata_is_named() -> None:
    recorded = Editable("a", "1.0", "envs", ".", ("b>=1", "c"))
    text = "Name: A\nVersion: 1.1\nRequires-Dist: b>=1\nRequires-Dist: d; extra == 'x'\n\nbody\n"
    assert differences(recorded, text) == [
        "its version is 1.1, recorded is 1.0",
        "it requires d; extra == 'x', which is not recorded",
        "it does not require c any more",
    ]
