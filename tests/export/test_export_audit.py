"""The audit of a published run: what it carries is looked at, what it lacks is named, and lies are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.audit.check import Check
from assay.digest import sha256_file
from assay.export.unpack import unpack
from assay.export.write import export
from assay.signing.key import load_public_key, make_key
from audit.altered import Altered
from coordinator.suites import Counting, asking, quiet, write
from toy_checkout import Toy

NEEDS_THE_RUN = {"samples", "configuration", "requests", "isolation"}


@dataclass(frozen=True)
class Signed:
    """A run that was signed, and its published form."""

    run: Path
    published: Path
    private: Path
    public: Path


@pytest.fixture(scope="module")
def signed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """A toy's run by its operator, published."""
    folder = tmp_path_factory.mktemp("signed")
    private, public, _ = make_key(folder, "key", None)
    done = toy.run("run", "toy", "--runs", folder, "--json", ASSAY_SIGNING_KEY_FILE=str(private))
    assert done.code == 0, done.err
    export(done.run, folder / "run.zip")
    return Signed(done.run, unpack(folder / "run.zip", folder / "in"), private, public)


def audited(toy: Toy, run: Path, *words: str | Path) -> dict[str, Check]:
    """The checks of the command by their names."""
    done = toy.run("audit", run, "--json", *words)
    assert done.code in (0, 5), done.err
    return {each["name"]: Check(**each) for each in done.json["checks"]}


def failed(checks: dict[str, Check]) -> set[str]:
    """The names of those that failed."""
    return {name for name, check in checks.items() if check.verdict == "FAIL"}


def test_what_an_export_carries_passes_and_what_it_lacks_is_named(toy: Toy, signed: Signed) -> None:
    whole = audited(toy, signed.run, "--key", signed.public)
    found = audited(toy, signed.published, "--key", signed.public)
    assert failed(whole) == failed(found) == set()
    assert list(found) == list(whole)
    left_out = {name for name, check in found.items() if "leaves out" in " ".join(check.evidence)}
    assert left_out >= NEEDS_THE_RUN
    for name in found.keys() - left_out:
        assert found[name].verdict == whole[name].verdict, found[name]
    for name in ("signature", "statement", "files", "plan", "state", "tasks", "rows", "summary", "pins"):
        assert found[name].verdict == "PASS", found[name]
    assert "ask the operator" in " ".join(found["samples"].evidence)


def test_without_the_key_or_with_another_nobody_vouches(toy: Toy, signed: Signed, tmp_path: Path) -> None:
    assert audited(toy, signed.published)["signature"].verdict == "UNKNOWN"
    _, other, _ = make_key(tmp_path, "other", None)
    assert failed(audited(toy, signed.published, "--key", other)) >= {"signature"}
    assert load_public_key(other).key_id != load_public_key(signed.public).key_id


def test_answers_that_are_not_there_are_not_scored_again(toy: Toy, signed: Signed) -> None:
    assert audited(toy, signed.published, "--rescore")["rescore"].verdict == "UNKNOWN"


def relisted(run: Path, path: str) -> None:
    """Write a changed file's digest into the list, as a liar would."""
    contents = json.loads((run / "export.json").read_bytes())
    digest = sha256_file(run / path)
    if path in contents["kept"]:
        contents["kept"][path] = digest
    else:
        contents["derived"][path]["sha256"] = digest
    (run / "export.json").write_text(json.dumps(contents, indent=2) + "\n", "utf-8")


def better(rows: list[Any]) -> None:
    """One wrong answer becomes right."""
    row = next(row for row in rows if row["reward"] == 0.0)
    row["reward"], row["rewards"] = 1.0, dict.fromkeys(row["rewards"], 1.0)


def raised(value: Any) -> None:
    """A score that no row tells of."""
    value["families"][0]["score"] = 0.99


def hidden(value: Any) -> None:
    """What describes the checkout is left out."""
    digest = value["kept"].pop("provenance/worktree.json")
    value["omitted"]["provenance/worktree.json"] = digest


def cleaned(value: Any) -> None:
    """A dirty checkout becomes clean."""
    value["commit"] = "0" * 40


def boasted(value: Any) -> None:
    """A score in what describes the export to strangers."""
    next(each for each in value["@graph"] if each["@type"] == "PropertyValue")["value"] = 0.99


def twice(path: Path, key: str) -> None:
    """A key of the outermost table stands there twice."""
    text = path.read_text("utf-8")
    path.write_text(text.replace(f'"{key}":', f'"{key}": "done",\n  "{key}":', 1), "utf-8")


Change = Callable[[Altered], object]


@pytest.mark.parametrize(
    ("path", "change", "found"),
    [
        ("samples.jsonl", lambda run: run.lines("samples.jsonl", better), {"summary"}),
        (
            "samples.jsonl",
            lambda run: run.lines("samples.jsonl", lambda rows: rows.pop()),
            {"rows", "summary"},
        ),
        (
            "samples.jsonl",
            lambda run: run.lines("samples.jsonl", lambda rows: rows.append(rows[-1])),
            {"rows", "summary"},
        ),
        ("summary.json", lambda run: run.json("summary.json", raised), {"summary", "statement"}),
        (
            "summary.json",
            lambda run: run.json("summary.json", lambda value: value.update(model="another")),
            {"summary"},
        ),
        (
            "state.json",
            lambda run: run.json("state.json", lambda value: value.update(started_at="2020-01-01T00:00:00Z")),
            {"statement"},
        ),
        (
            "state.json",
            lambda run: run.json("state.json", lambda value: value.update(phase="failed")),
            {"state"},
        ),
        (
            "provenance/worktree.json",
            lambda run: run.json("provenance/worktree.json", cleaned),
            {"files", "statement"},
        ),
        (
            "resolved.json",
            lambda run: run.json("resolved.json", lambda value: value.update(description="x")),
            {"files", "plan", "statement"},
        ),
        (
            "provenance/tasks/count.json",
            lambda run: run.json("provenance/tasks/count.json", lambda value: value["tasks"].reverse()),
            {"rows", "tasks"},
        ),
        (None, lambda run: run.json("export.json", hidden), {"files"}),
        (None, lambda run: run.json("export.json", lambda value: value.update(kind="suite")), {"files"}),
        ("summary.json", lambda run: twice(run.run / "summary.json", "status"), {"files"}),
        (None, lambda run: run.json("ro-crate-metadata.json", boasted), {"files"}),
        (None, lambda run: (run.run / "ro-crate-metadata.json").unlink(), {"files"}),
        (None, lambda run: (run.run / "more.json").write_text("{}"), {"files"}),
        (None, lambda run: (run.run / "provenance/declared.json").unlink(), {"files"}),
    ],
    ids=[
        "a score",
        "a removed row",
        "a row twice",
        "a score of the summary",
        "another model's name",
        "when it began",
        "how it ended",
        "the checkout's commit",
        "the configuration",
        "the order of tasks",
        "a file that is said to be left out",
        "what kind of run it was",
        "a key twice",
        "a score of the crate",
        "the crate is gone",
        "a file that was added",
        "a file that is gone",
    ],
)
def test_what_was_changed_in_an_export_is_found_by_its_check(
    toy: Toy, signed: Signed, tmp_path: Path, path: str | None, change: Change, found: set[str]
) -> None:
    run = Altered(tmp_path / signed.published.name)
    shutil.copytree(signed.published, run.run)
    change(run)
    if path is not None:
        relisted(run.run, path)
    assert failed(audited(toy, run.run, "--key", signed.public)) >= found


@pytest.mark.slow
def test_a_suites_export_is_audited_as_far_as_it_carries(toy: Toy, runs: Path, tmp_path: Path) -> None:
    private, public, _ = make_key(tmp_path, "key", None)
    with Counting() as served:
        suite = write(
            tmp_path / "small.toml",
            {"nobody": {"protocol": "none", "max_concurrency": 4}, "local": served.target(3)},
            [quiet("one", wrong_every=3), asking("two") | {"repeats": 2}],
        )
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json", ASSAY_SIGNING_KEY_FILE=str(private))
    run = Path(done.json["run_dir"])
    export(run, tmp_path / "run.zip")
    published = unpack(tmp_path / "run.zip", tmp_path / "in")
    whole = audited(toy, run, "--key", public)
    found = audited(toy, published, "--key", public)
    assert failed(whole) == failed(found) == set()
    assert list(found) == list(whole)
    for name in ("signature", "statement", "files", "configuration", "state", "rows", "summary", "pins"):
        assert found[name].verdict == "PASS", found[name]
    for name in ("events", "answers", "tasks"):
        assert found[name].verdict == "UNKNOWN", found[name]
    altered = Altered(published)
    altered.lines("samples.jsonl", better)
    relisted(published, "samples.jsonl")
    assert failed(audited(toy, published, "--key", public)) == {"files", "summary"}
