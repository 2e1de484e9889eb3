"""Statements and summaries: their forms, and that no crash leaves one beside another manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope

from assay.digest import sha256_bytes, sha256_file
from assay.errors import VerificationError
from assay.files import json_text
from assay.paths import ROOT
from assay.record.manifest import withdraw_statement, write_manifest
from assay.signing import dsse, vsa
from assay.signing.gather import statement_of
from assay.signing.key import SigningKey
from assay.signing.schema import schema
from assay.signing.sign import sign_late, sign_run
from assay.signing.verify import verify
from signed import STATEMENT, statement
from toy_checkout import Toy

KEY = SigningKey(Ed25519PrivateKey.generate())
OTHER = SigningKey(Ed25519PrivateKey.generate())
SCHEMA = ROOT / "docs/schemas/eval-run.v1.json"


@pytest.fixture(scope="module")
def recorded(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody signed."""
    done = toy.run("run", "toy", "--runs", tmp_path_factory.mktemp("recorded"))
    assert done.code == 0, done.err
    return done.run


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to be signed."""
    copy = tmp_path / recorded.name
    shutil.copytree(recorded, copy, symlinks=True)
    return copy


def test_the_committed_schema_is_the_model_s_and_a_statement_obeys_it(run: Path) -> None:
    assert SCHEMA.read_text("utf-8") == json_text(schema()), (
        f"python -m assay.signing.schema > {SCHEMA.relative_to(ROOT)}"
    )
    sign_run(run, KEY)
    predicate = statement(run)["predicate"]
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(predicate)
    for damaged in ({**predicate, "status": "good"}, {**predicate, "more": 1}, {**predicate, "scores": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema()).validate(damaged)


def test_a_statement_names_its_materials_by_digest_and_by_address(run: Path) -> None:
    # Other tests edit the toy checkout, and an edited one names no commit.
    path = run / "provenance/worktree.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "clean": True, "changed": []}))
    said = {each["name"]: each for each in statement_of(run).predicate["materials"]}
    inputs = json.loads((run / "provenance/inputs.before.json").read_bytes())["inputs"]
    assert said.keys() == inputs.keys()
    for name, digest in inputs.items():
        algorithm = "assayTree" if name.startswith(("tree:", "environment:")) else "sha256"
        assert said[name]["digest"] == {algorithm: digest}
    commit = json.loads((run / "provenance/worktree.json").read_bytes())["commit"]
    blob = said["file:models.lock"]["uri"]
    assert blob.startswith("swh:1:cnt:")
    assert blob.endswith(f";anchor=swh:1:rev:{commit};path=/models.lock")
    assert said["model:toy-model"]["uri"].startswith("pkg:pypi/toy@1?checksum=sha256:")
    assert said["model:toy-model"]["uri"].endswith("&file_name=toy-1-py3-none-any.whl#toy/model.gguf")
    assert "uri" not in said["tree:eval/assay"], "nothing but its digest names a tree"


def test_a_statement_holds_no_text_of_a_task_an_answer_or_an_error(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "count/traces.jsonl").read_bytes().splitlines()]
    texts = {text for row in rows for text in leaves(row) if len(text) > 20 and " " in text}
    assert texts
    payload = statement_of(run).payload().decode("utf-8")
    assert not [text for text in texts if text in payload]
    assert str(run.parent) not in payload


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(each)


class Died(BaseException):
    """What a killed process would have been doing."""


@contextmanager
def dies_at(step: int) -> Iterator[list[int]]:
    """Die before the step-th change of the file system; yields how many there were."""
    done = [0]

    def counted(change: Any) -> Any:
        def instead(*words: Any, **named: Any) -> Any:
            if done[0] == step:
                raise Died
            done[0] += 1
            return change(*words, **named)

        return instead

    with (
        mock.patch.object(Path, "replace", counted(Path.replace)),
        mock.patch.object(Path, "unlink", counted(Path.unlink)),
        mock.patch("os.fsync", counted(lambda handle: None)),
    ):
        yield done


def test_wherever_a_process_dies_no_statement_stands_beside_another_manifest(run: Path) -> None:
    sign_run(run, KEY)
    before = run.with_name("before")
    shutil.copytree(run, before, symlinks=True)
    steps = 0
    ended = False
    while not ended:
        shutil.rmtree(run)
        shutil.copytree(before, run, symlinks=True)
        with dies_at(steps):
            try:
                # What a resume does: open the run again, change it, record it, sign it.
                withdraw_statement(run)
                (run / "manifest.json").unlink()
                (run / "summary.md").write_text("another end\n")
                write_manifest(run)
                sign_run(run, KEY)
                ended = True
            except Died:
                steps += 1
        if (run / STATEMENT).exists():
            found = verify(run, KEY.public.pem)
            recorded = json.loads((run / "manifest.json").read_bytes())["files"]["summary.md"]
            assert recorded == f"sha256:{sha256_file(run / 'summary.md')}", f"died at step {steps}"
            assert found.statement == statement_of(run)
    assert steps >= 8, "as many places to die at"


def test_a_new_manifest_withdraws_what_was_said_of_the_old_one(run: Path) -> None:
    sign_run(run, KEY)
    write_manifest(run)
    assert not (run / STATEMENT).exists()
    sign_run(run, None)
    assert not (run / STATEMENT).exists()


def test_a_run_is_signed_late_only_as_it_was_recorded(run: Path) -> None:
    sign_late(run, KEY)
    first = (run / STATEMENT).read_bytes()
    sign_late(run, OTHER)
    assert (run / STATEMENT).read_bytes() == first, "it is signed already"
    (run / STATEMENT).unlink()
    (run / "summary.md").write_text("another\n")
    with pytest.raises(VerificationError, match=r"summary\.md"):
        sign_late(run, KEY)
    assert not (run / STATEMENT).exists()


def verification(passed: bool, strict: bool = False) -> vsa.Verification:
    check = {"name": "files", "verdict": "PASS" if passed else "FAIL", "evidence": ["43 files"]}
    return vsa.Verification([check], passed, strict, False, KEY.public.key_id, "2026-01-02T03:04:05.678Z")


@pytest.mark.parametrize(
    ("found", "result", "levels"),
    [
        (verification(True), "PASSED", ["ASSAY_AUDITED"]),
        (verification(True, strict=True), "PASSED", ["ASSAY_AUDITED_STRICTLY"]),
        (verification(False), "FAILED", ["FAILED"]),
    ],
    ids=["passed", "strictly", "failed"],
)
def test_an_audit_is_signed_as_a_verification_summary(
    run: Path, found: vsa.Verification, result: str, levels: list[str]
) -> None:
    sign_run(run, KEY)
    data = vsa.seal_summary(run, found, OTHER)
    said = json.loads(Envelope.from_dict(json.loads(data)).payload)
    assert said["predicateType"] == "https://slsa.dev/verification_summary/v1"
    assert said["subject"] == [
        {"name": "manifest.json", "digest": {"sha256": sha256_file(run / "manifest.json")}}
    ]
    predicate = said["predicate"]
    assert (predicate["verificationResult"], predicate["verifiedLevels"]) == (result, levels)
    assert not [level for level in levels if level.startswith("SLSA_")], "these are SLSA's own"
    assert predicate["resourceUri"] == f"urn:assay:run:{run.name}"
    assert predicate["inputAttestations"] == [
        {"uri": STATEMENT, "digest": {"sha256": sha256_bytes((run / STATEMENT).read_bytes())}}
    ]
    assert predicate["assay_checks"] == list(found.checks)
    assert predicate["policy"]["annotations"]["trusted_key"] == KEY.public.key_id
    assert vsa.open_summary(data, OTHER.public, "it").predicate == predicate
    with pytest.raises(VerificationError, match="another key"):
        vsa.open_summary(data, KEY.public, "it")


def test_a_run_s_statement_is_no_verification_summary_nor_the_other_way_round(run: Path) -> None:
    sign_run(run, KEY)
    with pytest.raises(VerificationError, match=r"urn:assay:eval-run/v1"):
        vsa.open_summary((run / STATEMENT).read_bytes(), KEY.public, "it")
    (run / STATEMENT).write_bytes(vsa.seal_summary(run, verification(True), KEY))
    with pytest.raises(VerificationError, match=r"slsa\.dev/verification_summary"):
        verify(run, KEY.public.pem)


def test_what_cannot_be_read_again_is_not_written(run: Path) -> None:
    with (
        mock.patch.object(dsse, "LARGEST_BYTES", 1000),
        pytest.raises(VerificationError, match="not written"),
    ):
        sign_run(run, KEY)
    assert not (run / STATEMENT).exists()
