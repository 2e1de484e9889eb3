"""A lock that leaves out what its packages require: exactly what is said to be absent may be missing.

The evaluator has nothing editable, no dialect and no limits of containers either, as those of suites.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import packaging
import pytest

from tiny_checkout import Tiny, make, pin, write_wheel

TOML = """\
name = "asker"
version = "2.0"
python = ">=3.11,<3.14"
absent = [ABSENT]

[environment]
PYTHONHASHSEED = "0"
"""
NEEDS = "Requires-Dist: tinypure>=1\nRequires-Dist: heavy>=2\nRequires-Dist: odd; python_version < '3'\n"


def wheel(folder: Path, needs: str = "") -> str:
    """A wheel of the evaluator that requires the lines; its pin."""
    text = f"Metadata-Version: 2.1\nName: asker\nVersion: 2.0\n{needs}"
    code = {"asker/__init__.py": b"", "asker/__pycache__/__init__.cpython-311.pyc": b"made elsewhere"}
    code["asker/__pycache__/__init__.cpython-312.pyc"] = b"made elsewhere"
    code["asker/__pycache__/__init__.cpython-313.pyc"] = b"made elsewhere"
    return pin(write_wheel(folder, "asker", "2.0", code, {"METADATA": text.encode()}), "asker", "2.0")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny checkout with the evaluator's folder in it."""
    tiny = make(tmp_path_factory.mktemp("absent"))
    home = tiny.root / "eval/evaluators/asker"
    home.mkdir(parents=True)
    module = Path(packaging.__file__).parent
    files = {f"packaging/{path.name}": path.read_bytes() for path in module.glob("*.py")}
    files |= {f"packaging/licenses/{path.name}": path.read_bytes() for path in module.glob("licenses/*.py")}
    build = (tiny.root / "build.lock").read_text()
    build += pin(write_wheel(tiny.wheels, "packaging", "1.0", files), "packaging", "1.0")
    (home / "build.lock").write_text(build)
    return tiny


@pytest.fixture
def home(checkout: Tiny) -> Iterator[Path]:
    """The evaluator's folder, whose environment is not made; its lock has the evaluator and `tinypure`."""
    folder = checkout.root / "eval/evaluators/asker"
    (folder / "evaluator.toml").write_text(TOML.replace("ABSENT", '"Heavy"'))
    lock = (folder / "build.lock").read_text() + (checkout.root / "requirements.lock").read_text()
    (folder / "requirements.lock").write_text("".join(dict.fromkeys(lock.splitlines(keepends=True))))
    with (folder / "requirements.lock").open("a") as file:
        file.write(wheel(checkout.wheels, NEEDS))
    yield folder
    (folder / ".venv/assay-environment.json").unlink(missing_ok=True)


def set_up(checkout: Tiny, *words: str) -> tuple[int, str, str]:
    done = checkout.run("eval/scripts/setup", "asker", *words)
    return done.returncode, done.stdout, done.stderr


def test_what_is_said_to_be_absent_may_be_missing_and_the_environment_is_whole(
    checkout: Tiny, home: Path
) -> None:
    code, _, said = set_up(checkout)
    assert code == 0, said
    code, out, said = set_up(checkout, "--check", "--json")
    assert code == 0, said
    versions = json.loads(out.splitlines()[-1])["environments"][0]["versions"]
    assert versions == {"asker": "2.0", "packaging": "1.0", "tinybuild": "1.0", "tinypure": "1.0"}


def test_byte_code_that_came_with_a_wheel_is_sealed_as_the_set_up_compiled_it(
    checkout: Tiny, home: Path
) -> None:
    assert set_up(checkout)[0] == 0
    tag = f"cpython-{next(home.glob('.venv/lib/python3.*')).name.removeprefix('python').replace('.', '')}"
    path = next(home.glob(f".venv/lib/python3.*/site-packages/asker/__pycache__/__init__.{tag}.pyc"))
    assert path.read_bytes() != b"made elsewhere"
    path.write_bytes(path.read_bytes() + b"?")
    code, _, said = set_up(checkout, "--check")
    assert code == 5
    assert f"__init__.{tag}.pyc is " in said


@pytest.mark.parametrize(
    ("absent", "needs", "named"),
    [
        ("", NEEDS, "heavy"),
        ('"heavy"', NEEDS + "Requires-Dist: other\n", "asker requires other"),
        ('"heavy"', NEEDS.replace("tinypure>=1", "tinypure>=2"), "asker requires tinypure>=2"),
        ('"heavy", "tinypure"', NEEDS, "nothing misses tinypure"),
    ],
)
def test_what_else_is_missing_is_named_and_the_environment_is_not_used(
    checkout: Tiny, home: Path, absent: str, needs: str, named: str
) -> None:
    (home / "evaluator.toml").write_text(TOML.replace("ABSENT", absent))
    lock = (home / "requirements.lock").read_text().partition("asker==")[0]
    (home / "requirements.lock").write_text(lock + wheel(checkout.wheels, needs))
    code, _, said = set_up(checkout)
    assert code == 3
    assert named in said
    assert not (home / ".venv/assay-environment.json").exists()


def test_what_is_aside_is_made_when_it_is_named_and_not_with_all(checkout: Tiny, home: Path) -> None:
    (home / "evaluator.toml").write_text("aside = true\n" + TOML.replace("ABSENT", '"heavy"'))
    done = checkout.run("eval/scripts/setup", "all")
    assert done.returncode == 0, done.stderr
    assert "asker" not in done.stdout + done.stderr
    assert "asker: " in checkout.run("eval/scripts/setup", "all", "asker").stdout


def test_a_changed_absence_is_a_change_of_the_environment(checkout: Tiny, home: Path) -> None:
    assert set_up(checkout)[0] == 0
    (home / "evaluator.toml").write_text(TOML.replace("ABSENT", '"heavy", "odd"'))
    code, _, said = set_up(checkout, "--check")
    assert code == 3
    assert "absent changed" in said
