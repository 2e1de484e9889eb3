"""What the operator declares of a server: a recipe's id, and a manifest of the model that is served."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from served import asked, verdict

from standin import StandIn
from toy_checkout import Toy

MANIFEST = """\
schema_version = "assay/served-model/v1"
model = "stand-in"
source = "a folder of weights"
revision = "r1"

[[file]]
path = "weights/model-00001-of-00002.safetensors"
size_bytes = 12
sha256 = "{digest}"

[[file]]
path = "config.json"
size_bytes = 0
sha256 = "{other}"
"""
DIGEST = "ab" * 32
WHOLE = MANIFEST.format(digest=DIGEST, other="cd" * 32)


def manifest(tmp_path: Path, text: str = WHOLE, name: str = "served.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_recipe_and_a_model_manifest_are_recorded_as_the_operators_word(
    toy: Toy, runs: Path, tmp_path: Path, form: str
) -> None:
    value = {
        "schema_version": "assay/served-model/v1",
        "model": "stand-in",
        "source": "a folder of weights",
        "revision": "r1",
        "file": [
            {"path": "weights/model-00001-of-00002.safetensors", "size_bytes": 12, "sha256": DIGEST},
            {"path": "config.json", "size_bytes": 0, "sha256": "cd" * 32},
        ],
    }
    path = manifest(tmp_path, WHOLE if form == "toml" else json.dumps(value), f"served.{form}")
    with StandIn() as server:
        words = ("--model-manifest", path)
        done = asked(toy, server, runs, "second", *words, QWEN_RECIPE_ID="exl3/4.0bpw@v2")
        without = asked(toy, server, runs, "second")
    assert done.code == 0, done.err
    found = json.loads((Path(done.json["run_dir"]) / "provenance/declared.json").read_text())
    assert found.pop("model_manifest_sha256") == sha256(path.read_bytes()).hexdigest()
    assert found == {
        "schema_version": "assay/declared/v1",
        "source": "the operator's word",
        "recipe_id": "exl3/4.0bpw@v2",
        "model_manifest": value,
    }
    nothing = json.loads((Path(without.json["run_dir"]) / "provenance/declared.json").read_text())
    assert (nothing["recipe_id"], nothing["model_manifest"]) == (None, None)


BAD: dict[str, tuple[str, str, str]] = {
    "an unknown key": (WHOLE.replace("revision", "revison"), "served.toml", 'did you mean "revision"?'),
    "a short digest": (WHOLE.replace(DIGEST, "ab"), "served.toml", "file.0.sha256"),
    "a digest in capitals": (WHOLE.replace(DIGEST, DIGEST.upper()), "served.toml", "file.0.sha256"),
    "a size in quotes": (WHOLE.replace("= 12", '= "12"'), "served.toml", "file.0.size_bytes"),
    "a negative size": (WHOLE.replace("= 12", "= -12"), "served.toml", "file.0.size_bytes"),
    "a path that leads out": (WHOLE.replace("weights/", "../"), "served.toml", "leads out"),
    "an absolute path": (WHOLE.replace("weights/", "/etc/"), "served.toml", "file.0.path"),
    "a file twice": (
        WHOLE.replace("weights/model-00001-of-00002.safetensors", "config.json"),
        "served.toml",
        "twice",
    ),
    "no file": (WHOLE.partition("[[file]]")[0], "served.toml", "file: Field required"),
    "another form": (WHOLE.replace("served-model/v1", "served-model/v9"), "served.toml", "schema_version"),
    "no TOML": ("model = ", "served.toml", "cannot be used"),
    "no JSON": ("{", "served.json", "cannot be used"),
    "a list": ("[]", "served.json", "cannot be used"),
    "another ending": (WHOLE, "served.yaml", "neither in .toml nor in .json"),
    "another model": (WHOLE.replace('"stand-in"', '"other"'), "served.toml", "asked for 'stand-in'"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_model_manifest_that_is_none_is_bad_configuration(
    toy: Toy, runs: Path, tmp_path: Path, bad: str
) -> None:
    text, name, why = BAD[bad]
    with StandIn() as server:
        done = asked(toy, server, runs, "second", "--model-manifest", manifest(tmp_path, text, name))
        dry = asked(toy, server, runs, "second", "--dry-run", "--model-manifest", tmp_path / name)
        assert server.requests == []
    assert (done.code, dry.code) == (2, 2)
    assert why in done.err
    assert "  next: " in done.err
    assert list(runs.iterdir()) == []


def test_a_model_manifest_that_cannot_be_read_is_bad_configuration(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder.toml").mkdir()
    with StandIn() as server:
        for path, why in ((tmp_path / "no.toml", "No such file"), (tmp_path / "folder.toml", "regular file")):
            done = asked(toy, server, runs, "second", "--model-manifest", path)
            assert done.code == 2
            assert why in done.err
    own = toy.run("run", "toy", "--model-manifest", manifest(tmp_path), "--runs", runs, "--json")
    assert own.code == 2
    assert "it serves toy-model itself" in own.err


@pytest.mark.parametrize("recipe", ["two words", "-x", "x" * 201, "a\nb", "ä"])
def test_a_recipe_that_is_no_name_is_bad_configuration(toy: Toy, runs: Path, recipe: str) -> None:
    with StandIn() as server:
        done = asked(toy, server, runs, "second", QWEN_RECIPE_ID=recipe)
    assert done.code == 2
    assert "QWEN_RECIPE_ID cannot be used" in done.err
    assert list(runs.iterdir()) == []


def test_a_server_that_claims_another_file_than_the_manifest_is_not_asked(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    def identity(number: int) -> dict[str, Any]:
        return {"schema": "assay/identity/v1", "system_fingerprint": "x", "model": {"file_sha256": claimed}}

    path = manifest(tmp_path)
    claimed = "00" * 32
    with StandIn(identity=identity) as server:
        done = asked(toy, server, runs, "second", "--model-manifest", path)
        assert server.requests == []
        claimed = DIGEST
        right = asked(toy, server, runs, "second", "--model-manifest", path)
    assert done.code == 5
    assert "which the model manifest does not have" in done.err
    assert right.code == 0, right.err
    assert verdict(toy, right, "server")[0] == "PASS"
