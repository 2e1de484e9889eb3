"""`setup --check` reads every byte: whatever differs is named by its path, and nothing is changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tiny_checkout import Tiny, make, record_digest

MODULE = "tinypure/__init__.py"


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_fresh_environment_passes_and_says_what_it_is(whole: Tiny) -> None:
    done = whole.setup("--check", "--json")
    assert done.returncode == 0, done.stderr
    state = json.loads(done.stdout.splitlines()[-1])["environments"][0]
    assert state["versions"] == {"assay": "0.1.0", "tinybuild": "1.0", "tinypure": "1.0"}
    assert set(state["locks"]) == {"build.lock", "requirements.lock"}


def test_it_changes_nothing(whole: Tiny) -> None:
    before = tree(whole.root / ".venv")
    whole.setup("--check")
    assert tree(whole.root / ".venv") == before


@pytest.mark.parametrize("name", [MODULE, "tinypure/data.txt", "tinypure-1.0.dist-info/METADATA"])
def test_one_edited_byte_is_found_and_named(whole: Tiny, name: str) -> None:
    path = whole.site / name
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    done = whole.setup("--check")
    assert done.returncode == 5
    assert f"site-packages/{name} is " in done.stderr
    assert "1 difference" in done.stderr
    assert "--rebuild" in done.stderr


def test_an_edited_module_whose_record_was_made_to_agree_is_found(whole: Tiny) -> None:
    path = whole.site / MODULE
    record = whole.site / "tinypure-1.0.dist-info/RECORD"
    old = path.read_bytes()
    path.write_bytes(b"value = 2\n")
    text = record.read_text().replace(record_digest(old), record_digest(b"value = 2\n"))
    record.write_text(text)
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "tinypure-1.0.dist-info/RECORD is " in done.stderr


def test_edited_byte_code_is_found(whole: Tiny) -> None:
    path = next((whole.site / "tinypure/__pycache__").glob("__init__.cpython-*.pyc"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert f"__pycache__/{path.name}" in done.stderr


def test_an_edited_launcher_is_found(whole: Tiny) -> None:
    with (whole.root / ".venv/bin/assay").open("a") as file:
        file.write("# edited\n")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert ".venv/bin/assay is " in done.stderr


def test_a_removed_file_is_named(whole: Tiny) -> None:
    (whole.site / "tinypure/data.txt").unlink()
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "tinypure/data.txt is missing" in done.stderr


def test_a_package_that_is_gone_with_its_record_is_named(whole: Tiny) -> None:
    shutil.rmtree(whole.site / "tinypure")
    shutil.rmtree(whole.site / "tinypure-1.0.dist-info")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "tinypure is not installed, but was 1.0" in done.stderr
    assert "tinypure-1.0.dist-info/RECORD is missing" in done.stderr


def test_a_file_that_no_record_names_is_told(whole: Tiny) -> None:
    (whole.site / "sitecustomize.py").write_text("print('hello')\n")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "site-packages/sitecustomize.py is named by no RECORD" in done.stderr


def test_a_file_replaced_by_a_link_to_an_equal_one_is_told(whole: Tiny, tmp_path: Path) -> None:
    path = whole.site / MODULE
    shutil.copy(path, tmp_path / "elsewhere.py")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.py")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert f"{MODULE} is -> " in done.stderr


def test_an_edited_seal_is_no_way_around(whole: Tiny) -> None:
    seal = whole.root / ".venv/assay-seal.json"
    seal.write_bytes(seal.read_bytes().replace(b"pyvenv.cfg", b"pyvenv.cfh"))
    done = whole.setup("--check")
    assert done.returncode == 5
    assert ".venv/assay-seal.json was changed" in done.stderr


def test_a_package_that_no_lock_names_is_told(whole: Tiny) -> None:
    info = whole.site / "intruder-3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: intruder\nVersion: 3.0\n")
    (info / "RECORD").write_text("")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "intruder 3.0 is installed, but the lock has nothing of that name" in done.stderr


def test_an_edited_source_changes_the_digest_but_is_no_damage(whole: Tiny) -> None:
    def state() -> dict[str, str]:
        done = whole.setup("--check", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])["environments"][0]
        return found

    before = state()
    with (whole.root / "eval/assay/names.py").open("a") as file:
        file.write("# edited\n")
    after = state()
    assert after["packages_digest"] == before["packages_digest"]
    assert after["sources_digest"] != before["sources_digest"]
    assert after["digest"] != before["digest"]


def test_packages_have_the_same_digest_wherever_the_checkout_lies(whole: Tiny, tmp_path: Path) -> None:
    other = make(tmp_path / "a longer way down")
    assert other.setup().returncode == 0
    digests = [
        json.loads(tiny.setup("--check", "--json").stdout.splitlines()[-1])["environments"][0]["digest"]
        for tiny in (whole, other)
    ]
    assert digests[0] == digests[1]


def test_a_missing_environment_is_exit_3_and_is_not_made(bare: Tiny) -> None:
    done = bare.setup("--check")
    assert done.returncode == 3
    assert "next: eval/scripts/setup assay" in done.stderr
    assert not (bare.root / ".venv").exists()
    assert not (bare.root / ".assay").exists()


def test_an_environment_of_another_lock_is_exit_3(whole: Tiny) -> None:
    with (whole.root / "requirements.lock").open("a") as file:
        file.write("\n")
    done = whole.setup("--check")
    assert done.returncode == 3
    assert "requirements.lock changed" in done.stderr


def test_an_unknown_environment_suggests_the_nearest(bare: Tiny) -> None:
    done = bare.run("eval/scripts/setup", "asay")
    assert done.returncode == 2
    assert 'did you mean "assay"?' in done.stderr
