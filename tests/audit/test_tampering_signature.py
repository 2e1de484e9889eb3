"""Every way to sign a run wrongly is found by the check that it is about, and named.

The operator holds a key of his own, and here he uses it: half of these statements are well signed and say
what the run does not.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from altered import Altered
from claims import SAYS, a_score

from assay.digest import canonical_json
from assay.signing.dsse import LARGEST_BYTES
from assay.signing.key import SigningKey, load_signing_key
from signed import STATEMENT, envelope, key_in, sign_again, statement, write
from toy_checkout import Toy

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519's group: s and s + ORDER are the same number to a careless verifier."""


@dataclass(frozen=True)
class Signed:
    """A copy of a signed run, the key that signed it, and a stranger's."""

    run: Path
    private: Path
    public: Path
    stranger: Path

    @property
    def key(self) -> SigningKey:
        """The operator's."""
        return load_signing_key(self.private)

    def envelope(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the envelope, and sign nothing."""
        value = envelope(self.run)
        change(value)
        (self.run / STATEMENT).write_text(json.dumps(value, indent=2) + "\n")

    def again(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Sign another statement."""
        sign_again(self.run, self.private, change)

    def predicate(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Sign another predicate."""
        self.again(lambda value: change(value["predicate"]))


@pytest.fixture(scope="module")
def whole(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """A run that the real command signed, and another key."""
    folder = tmp_path_factory.mktemp("signed")
    private, public = key_in(folder, "operator")
    stranger, _ = key_in(folder, "stranger")
    done = toy.run("run", "toy", "--runs", folder, ASSAY_SIGNING_KEY_FILE=str(private))
    assert done.code == 0, done.err
    return Signed(done.run, private, public, stranger)


@pytest.fixture
def honest_signed(whole: Signed, tmp_path: Path) -> Signed:
    """A copy of it under its own name, for one test to change."""
    run = tmp_path / whole.run.name
    shutil.copytree(whole.run, run, symlinks=True)
    return Signed(run, whole.private, whole.public, whole.stranger)


def audited(toy: Toy, run: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    done = toy.run("audit", run, "--json", *words)
    assert "Traceback" not in done.err
    return done.code, done.json


def evidence(answer: dict[str, Any], name: str) -> str:
    check = next(check for check in answer["checks"] if check["name"] == name)
    return "\n".join(check["evidence"])


def test_a_signed_run_verifies_with_its_key_and_says_whose(toy: Toy, whole: Signed) -> None:
    code, answer = audited(toy, whole.run, "--key", whole.public)
    assert (code, answer["failed"]) == (0, [])
    assert whole.key.public.key_id in evidence(answer, "signature")
    code, answer = audited(toy, whole.run)
    assert (code, answer["failed"]) == (0, [])
    check = next(check for check in answer["checks"] if check["name"] == "signature")
    assert check["verdict"] == "UNKNOWN", "nobody said whose signature is believed"


def test_a_key_that_is_none_is_the_auditor_s_own_mistake(toy: Toy, whole: Signed, tmp_path: Path) -> None:
    absent = tmp_path / "absent.pub.pem"
    for key, said in ((whole.private, "is a private key"), (absent, "cannot be read")):
        done = toy.run("audit", whole.run, "--key", key)
        assert (done.code, said in done.err) == (2, True), done.err


# What only the envelope or the statement's own form shows: found without reading the run.
def signed_by_a_stranger(run: Signed) -> None:
    write(run.run, base64.b64decode(envelope(run.run)["payload"]), load_signing_key(run.stranger))


def no_statement(run: Signed) -> None:
    (run.run / STATEMENT).unlink()


def a_key_id_that_lies(run: Signed) -> None:
    run.envelope(lambda value: value["signatures"][0].update(keyid="0" * 64))


def a_stranger_s_signature_under_the_operator_s_key_id(run: Signed) -> None:
    signed_by_a_stranger(run)
    run.envelope(lambda value: value["signatures"][0].update(keyid=run.key.public.key_id))


def a_signature_over_other_bytes(run: Signed) -> None:
    payload = base64.b64encode(base64.b64decode(envelope(run.run)["payload"]).replace(b'"done"', b'"good"'))
    run.envelope(lambda value: value.update(payload=payload.decode()))


def one_bit_of_the_signature(run: Signed) -> None:
    sig = bytearray(base64.b64decode(envelope(run.run)["signatures"][0]["sig"]))
    sig[17] ^= 1
    run.envelope(lambda value: value["signatures"][0].update(sig=base64.b64encode(sig).decode()))


def the_same_signature_in_another_number(run: Signed) -> None:
    sig = base64.b64decode(envelope(run.run)["signatures"][0]["sig"])
    other = sig[:32] + (int.from_bytes(sig[32:], "little") + ORDER).to_bytes(32, "little")
    run.envelope(lambda value: value["signatures"][0].update(sig=base64.b64encode(other).decode()))


def the_payload_written_again_and_signed_again(run: Signed) -> None:
    write(run.run, json.dumps(statement(run.run), indent=2, sort_keys=True).encode(), run.key)


def reordered_json_signed_again(run: Signed) -> None:
    said = dict(reversed(statement(run.run).items()))
    write(run.run, json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode(), run.key)


def reordered_json(run: Signed) -> None:
    said = dict(reversed(statement(run.run).items()))
    payload = base64.b64encode(json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode())
    run.envelope(lambda value: value.update(payload=payload.decode()))


def a_name_twice_in_the_payload(run: Signed) -> None:
    payload = base64.b64decode(envelope(run.run)["payload"])
    write(run.run, payload[:-1] + b',"predicate":{}}', run.key)


def a_truncated_envelope(run: Signed) -> None:
    path = run.run / STATEMENT
    path.write_bytes(path.read_bytes()[:-40])


def more_behind_the_envelope(run: Signed) -> None:
    path = run.run / STATEMENT
    path.write_bytes(path.read_bytes() * 2)


def a_huge_envelope(run: Signed) -> None:
    with (run.run / STATEMENT).open("ab") as file:
        file.truncate(LARGEST_BYTES + 1)


def another_payload_type(run: Signed) -> None:
    write(run.run, base64.b64decode(envelope(run.run)["payload"]), run.key, "application/json")


def another_predicate_type(run: Signed) -> None:
    run.again(lambda value: value.update(predicateType="urn:assay:eval-run/v2"))


def another_statement_type(run: Signed) -> None:
    run.again(lambda value: value.update(_type="https://in-toto.io/Statement/v0.1"))


def two_signatures(run: Signed) -> None:
    run.envelope(lambda value: value["signatures"].append(value["signatures"][0]))


def a_stranger_s_signature_beside(run: Signed) -> None:
    mine = envelope(run.run)["signatures"]
    signed_by_a_stranger(run)
    run.envelope(lambda value: value["signatures"].extend(mine))


def another_subject(run: Signed) -> None:
    run.again(lambda value: value["subject"][0].update(name="summary.json"))


def a_subject_that_only_looks_alike(run: Signed) -> None:
    run.again(lambda value: value["subject"][0].update(name="m\u0430nifest.json"))


def two_subjects(run: Signed) -> None:
    run.again(lambda value: value["subject"].append(value["subject"][0]))


def another_digest_of_the_subject(run: Signed) -> None:
    run.again(lambda value: value["subject"][0]["digest"].update(sha256="0" * 64))


def a_second_digest_of_the_subject(run: Signed) -> None:
    run.again(lambda value: value["subject"][0]["digest"].update(sha512="0" * 128))


def a_statement_in_url_safe_base64(run: Signed) -> None:
    payload = base64.b64decode(envelope(run.run)["payload"])
    # A text that the two alphabets spell differently, signed as it stands.
    value = json.loads(payload)
    value["predicate"]["name"] = "\u00ff\u00ff?>"
    write(run.run, canonical_json(value), run.key)
    said = envelope(run.run)["payload"].translate(str.maketrans("+/", "-_"))
    assert said != envelope(run.run)["payload"]
    run.envelope(lambda each: each.update(payload=said))


def a_link_for_a_statement(run: Signed) -> None:
    path = run.run / STATEMENT
    path.rename(run.run / "report.html")
    path.symlink_to("report.html")


def a_manifest_made_anew_under_the_old_statement(run: Signed) -> None:
    altered = Altered(run.run)
    (run.run / "run.log").write_text("another line\n")
    altered.reseal()


def the_statement_of_another_run(run: Signed) -> None:
    other = run.run.with_name("other")
    shutil.copytree(run.run, other)
    (other / "run.log").write_text("another run\n")
    Altered(other).reseal()
    sign_again(other, run.private)
    shutil.copy(other / STATEMENT, run.run / STATEMENT)


FORM: dict[Callable[[Signed], None], tuple[str, ...]] = {
    signed_by_a_stranger: ("signed by another key",),
    no_statement: ("the run is not signed",),
    a_key_id_that_lies: ("the signature is of the key", "names '0000"),
    a_stranger_s_signature_under_the_operator_s_key_id: ("does not fit these bytes",),
    a_signature_over_other_bytes: ("does not fit these bytes",),
    one_bit_of_the_signature: ("does not fit these bytes",),
    the_same_signature_in_another_number: ("does not fit these bytes",),
    the_payload_written_again_and_signed_again: ("not in the canonical form",),
    reordered_json_signed_again: ("not in the canonical form",),
    reordered_json: ("does not fit these bytes",),
    a_name_twice_in_the_payload: ("'predicate' stands there twice",),
    a_truncated_envelope: ("no strict JSON",),
    more_behind_the_envelope: ("no strict JSON", "Extra data"),
    a_huge_envelope: (f"larger than {LARGEST_BYTES} bytes",),
    another_payload_type: ("its payload is 'application/json'",),
    another_predicate_type: ("'urn:assay:eval-run/v2'",),
    another_statement_type: ("Statement/v0.1",),
    two_signatures: ("exactly one signature",),
    a_stranger_s_signature_beside: ("exactly one signature",),
    another_subject: ("subject is not manifest.json",),
    a_subject_that_only_looks_alike: ("subject is not manifest.json",),
    two_subjects: ("exactly one subject",),
    another_digest_of_the_subject: (f"with the digest {'0' * 64}",),
    a_second_digest_of_the_subject: ("exactly one digest",),
    a_statement_in_url_safe_base64: ("not standard base64",),
    a_link_for_a_statement: ("no regular file",),
    a_manifest_made_anew_under_the_old_statement: ("it is about a manifest.json with the digest",),
    the_statement_of_another_run: ("it is about a manifest.json with the digest",),
}


@pytest.mark.parametrize("tamper", FORM, ids=lambda tamper: tamper.__name__)
def test_a_signature_that_is_none_is_found_by_the_key_that_was_given(
    toy: Toy, honest_signed: Signed, tamper: Callable[[Signed], None]
) -> None:
    tamper(honest_signed)
    code, answer = audited(toy, honest_signed.run, "--key", honest_signed.public)
    assert code == 5
    assert answer["failed"][0] == "signature"
    for said in FORM[tamper]:
        assert said in evidence(answer, "signature")
    about_bytes = {"signature", "statement", *(["files", "form"] if "link" in tamper.__name__ else [])}
    assert set(answer["failed"]) <= about_bytes, "the run itself is as it was"


@pytest.mark.parametrize("claim", SAYS, ids=lambda claim: claim.__name__)
def test_a_well_signed_claim_that_the_run_does_not_carry_is_found_field_by_field(
    toy: Toy, honest_signed: Signed, claim: Callable[[dict[str, Any]], None]
) -> None:
    honest_signed.predicate(claim)
    code, answer = audited(toy, honest_signed.run, "--key", honest_signed.public)
    assert (code, answer["failed"]) == (5, ["statement"]), "the signature itself is good"
    assert SAYS[claim] in evidence(answer, "statement")


def test_such_a_claim_is_found_without_any_key_too(toy: Toy, honest_signed: Signed) -> None:
    honest_signed.predicate(a_score)
    code, answer = audited(toy, honest_signed.run)
    assert (code, answer["failed"]) == (5, ["statement"])


# Well signed, and no predicate of this form: a field more, one less, a number in another type.
def a_field_more(said: dict[str, Any]) -> None:
    said["verdict"] = "better"


def a_field_less(said: dict[str, Any]) -> None:
    del said["declared"]


def a_number_as_a_text(said: dict[str, Any]) -> None:
    said["problems"] = "0"


def a_number_of_another_type(said: dict[str, Any]) -> None:
    said["scores"][0]["score"] = int(said["scores"][0]["score"] >= 1)


@pytest.mark.parametrize(
    "claim",
    [a_field_more, a_field_less, a_number_as_a_text, a_number_of_another_type],
    ids=lambda claim: claim.__name__,
)
def test_a_well_signed_statement_of_another_form_is_none(
    toy: Toy, honest_signed: Signed, claim: Callable[[dict[str, Any]], None]
) -> None:
    honest_signed.predicate(claim)
    code, answer = audited(toy, honest_signed.run, "--key", honest_signed.public)
    assert (code, set(answer["failed"])) == (5, {"signature", "statement"})
    assert "urn:assay:eval-run/v1" in evidence(answer, "signature")
