"""Materials: an input is addressed as its lock says, and by its digest alone where no lock names it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay.files import write_json_atomic
from assay.paths import ROOT
from assay.record.manifest import write_manifest
from assay.signing.materials import Materials
from assay.signing.predicate import Checkout, Descriptor
from assay.signing.reading import Reading

DIRTY = Checkout(commit="c" * 40, clean=False, changed=1, diff_sha256="d" * 64)
LOCK: dict[str, Any] = tomllib.loads((ROOT / "datasets.lock").read_text("utf-8"))
PINNED = {"hub": "hf://datasets/", "bucket": "gs://", "modelscope": "git+https://", "github": "git+https://"}


def of(tmp_path: Path, inputs: dict[str, str], checkout: Checkout = DIRTY) -> dict[str, Descriptor]:
    """The materials of a run with these inputs and the checkout's own locks."""
    run = tmp_path / "run"
    pins = run / "provenance/pins"
    pins.mkdir(parents=True)
    for name in ("datasets.lock", "models.lock"):
        shutil.copy(ROOT / name, pins / name)
    inputs = {"file:datasets.lock": "a" * 64, "file:models.lock": "b" * 64, **inputs}
    write_json_atomic(run / "provenance/inputs.before.json", {"inputs": inputs})
    sources = {"here": {"repository": "https://example.org/here", "revision": "e" * 40, "digest": "f" * 64}}
    write_json_atomic(run / "provenance/sources.json", sources)
    write_manifest(run)
    return {each.name: each for each in Materials(Reading(run), checkout).all()}


def datasets(source: str) -> list[dict[str, Any]]:
    return [each for each in LOCK["dataset"] if each["source"] == source]


@pytest.mark.parametrize("source", sorted({each["source"] for each in LOCK["dataset"]}))
def test_task_data_are_named_where_their_publisher_keeps_them(tmp_path: Path, source: str) -> None:
    dataset = datasets(source)[0]
    file = dataset["files"][0]
    name = f"data:{dataset['name']}/{file['path']}"
    found = of(tmp_path, {name: "1" * 64, "data:nobody/file": "2" * 64})
    said = str(found[name].uri)
    assert said.startswith(PINNED[source])
    exact = file["generation"] if source == "bucket" else dataset["revision"]
    assert exact in said, "a branch's name would name other bytes tomorrow"
    assert found[name].digest == {"sha256": "1" * 64}
    assert found["data:nobody/file"].uri is None


def test_a_source_is_named_by_repository_and_commit(tmp_path: Path) -> None:
    found = of(tmp_path, {"source:here": "f" * 64, "source:nowhere": "f" * 64})
    assert found["source:here"].uri == f"git+https://example.org/here@{'e' * 40}"
    assert found["source:here"].digest == {"assayTree": "f" * 64, "gitCommit": "e" * 40}
    assert found["source:nowhere"].uri is None


def test_a_file_of_the_checkout_is_named_as_git_names_it(tmp_path: Path) -> None:
    blob = subprocess.run(
        ["git", "hash-object", ROOT / "models.lock"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert of(tmp_path, {})["file:models.lock"].uri == f"swh:1:cnt:{blob};path=/models.lock"


def test_the_commit_is_named_only_where_the_worktree_was_its(tmp_path: Path) -> None:
    clean = DIRTY.model_copy(update={"clean": True, "changed": 0})
    said = str(of(tmp_path, {}, clean)["file:models.lock"].uri)
    assert f";anchor=swh:1:rev:{'c' * 40};" in said


def test_an_image_is_named_by_its_id_alone(tmp_path: Path) -> None:
    found = of(tmp_path, {"sandbox:image": f"sha256:{'3' * 64}"})["sandbox:image"]
    assert (found.uri, found.digest) == (None, {"sha256": "3" * 64})
    assert "uri" not in json.loads(found.model_dump_json())


@pytest.mark.parametrize(
    "name", ["file:../../../etc/hostname", "launch:../../../etc/hostname", "file:/etc/hostname"]
)
def test_nothing_outside_of_the_run_is_read_for_a_hostile_name(tmp_path: Path, name: str) -> None:
    found = of(tmp_path, {name: "4" * 64})
    manifest = tmp_path / "run/manifest.json"
    value = json.loads(manifest.read_bytes())
    kind, _, rest = name.partition(":")
    folder = {"file": "provenance/pins/", "launch": "provenance/launch/"}[kind]
    value["files"][folder + rest] = f"sha256:{'4' * 64}"
    manifest.write_text(json.dumps(value))
    again = {each.name: each for each in Materials(Reading(tmp_path / "run"), DIRTY).all()}
    assert found[name].uri is None
    assert again[name].uri is None


def test_a_lock_that_is_none_gives_no_address_and_no_crash(tmp_path: Path) -> None:
    of(tmp_path, {"data:aime24/README.md": "5" * 64})
    run = tmp_path / "run"
    for text in (
        "dataset = 7",
        "[[dataset]]\nname = 7\nfiles = 'no'",
        "not toml [",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        (run / "provenance/pins/datasets.lock").write_text(text, "latin-1")
        write_manifest(run)
        found = {each.name: each for each in Materials(Reading(run), DIRTY).all()}
        assert found["data:aime24/README.md"].uri is None
