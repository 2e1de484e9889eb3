"""Envelopes: DSSE's own bytes, read by another library too, and refused in every spelling but one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError as OtherLibraryRefuses
from securesystemslib.signer import SSlibKey

from assay.digest import canonical_json
from assay.errors import VerificationError
from assay.signing import dsse
from assay.signing.key import SigningKey, load_signing_key
from signed import STATEMENT, key_in
from toy_checkout import Toy


@pytest.mark.parametrize(
    ("payload_type", "payload", "encoded"),
    [
        # The example of the protocol's own text, then lengths in bytes and not in characters.
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        ("", b"", b"DSSEv1 0  0 "),
        ("é", "ünïcode".encode(), "DSSEv1 2 é 9 ünïcode".encode()),
        ("a b", b"\x00\xff\n", b"DSSEv1 3 a b 3 \x00\xff\n"),
    ],
)
def test_what_is_signed_is_the_protocol_s_encoding(payload_type: str, payload: bytes, encoded: bytes) -> None:
    assert dsse.pae(payload_type, payload) == encoded


@given(st.text(max_size=20), st.binary(max_size=60), st.text(max_size=20), st.binary(max_size=60))
def test_two_different_messages_are_never_signed_as_one(a: str, b: bytes, c: str, d: bytes) -> None:
    assert (dsse.pae(a, b) == dsse.pae(c, d)) == ((a, b) == (c, d))


def test_another_library_verifies_the_same_file(toy: Toy, runs: Path, tmp_path: Path) -> None:
    private, public = key_in(tmp_path)
    done = toy.run("run", "toy", "--runs", runs, ASSAY_SIGNING_KEY_FILE=str(private))
    assert done.code == 0, done.err
    key = SSlibKey.from_crypto(
        serialization.load_pem_public_key(public.read_bytes()), load_signing_key(private).public.key_id
    )
    value = json.loads((done.run / STATEMENT).read_bytes())
    read = Envelope.from_dict(json.loads(json.dumps(value)))
    assert read.verify([key], 1) == {key.keyid: key}
    assert json.loads(read.payload)["subject"][0]["name"] == "manifest.json"
    value["payload"] = base64.b64encode(read.payload.replace(b'"done"', b'"Done"')).decode()
    with pytest.raises(OtherLibraryRefuses):
        Envelope.from_dict(value).verify([key], 1)


@pytest.fixture
def sealed(tmp_path: Path) -> tuple[bytes, Path]:
    private, _ = key_in(tmp_path)
    return dsse.seal(canonical_json({"a": 1}), load_signing_key(private)), private


def test_an_envelope_holds_the_bytes_that_were_signed(sealed: tuple[bytes, Path]) -> None:
    data, private = sealed
    envelope = dsse.read(data, "it")
    assert envelope.payload == b'{"a":1}'
    dsse.verify(envelope, load_signing_key(private).public, "it")
    assert dsse.seal(envelope.payload, load_signing_key(private)) == data, "the same bytes each time"


def changed(value: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({**value, **fields}).encode()


def urlsafe(value: dict[str, Any]) -> bytes:
    payload = base64.urlsafe_b64encode(b'{"a":"\xc3\xbf\xc3\xbf?>"}').decode()
    assert set("-_") & set(payload)
    return changed(value, payload=payload)


def loose_bits(value: dict[str, Any]) -> bytes:
    sig = value["signatures"][0]["sig"]
    assert sig.endswith("==")
    # The four bits that no byte is made of: another text, the same 64 bytes for a careless reader.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = sig[:-3] + alphabet[alphabet.index(sig[-3]) ^ 1] + "=="
    assert base64.b64decode(other) == base64.b64decode(sig)
    return changed(value, signatures=[{**value["signatures"][0], "sig": other}])


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "no object": (lambda value: json.dumps([value]).encode(), "no JSON object"),
    "a field more": (lambda value: changed(value, extra=1), "'extra'"),
    "a field twice": (
        lambda value: json.dumps(value).encode()[:-1] + b',"payload":"e30="}',
        "'payload' stands there twice",
    ),
    "no payload": (
        lambda value: json.dumps({k: v for k, v in value.items() if k != "payload"}).encode(),
        "holds",
    ),
    "no signature": (lambda value: changed(value, signatures=[]), "exactly one signature"),
    "two signatures": (
        lambda value: changed(value, signatures=value["signatures"] * 2),
        "exactly one signature",
    ),
    "signatures are none": (
        lambda value: changed(value, signatures={"keyid": "a", "sig": "b"}),
        "exactly one",
    ),
    "a signature with more": (
        lambda value: changed(value, signatures=[{**value["signatures"][0], "cert": ""}]),
        "not a keyid and a sig",
    ),
    "a short signature": (
        lambda value: changed(value, signatures=[{**value["signatures"][0], "sig": "AAAA"}]),
        "3 bytes, not 64",
    ),
    "url-safe base64": (urlsafe, "payload is not standard base64"),
    "base64 in lines": (
        lambda value: changed(value, payload=value["payload"][:4] + "\n" + value["payload"][4:]),
        "payload is not standard base64",
    ),
    "base64 without its end": (
        lambda value: changed(value, payload=value["payload"].rstrip("=")),
        "payload is not standard base64",
    ),
    "base64 with loose bits": (loose_bits, "sig is not standard base64"),
    "an empty payload": (lambda value: changed(value, payload=""), "payload is not standard base64"),
    "a payload that is no text": (lambda value: changed(value, payload=7), "no"),
    "another type": (lambda value: changed(value, payloadType="text/plain"), "'text/plain'"),
    "no number": (lambda value: json.dumps({**value, "payload": float("nan")}).encode(), "NaN is no number"),
    "not UTF-8": (lambda value: json.dumps(value).encode() + b"\xff", "no strict JSON"),
    "nested too deep": (lambda value: b'{"payload":' + b"[" * 100_000, "no strict JSON"),
    "cut off": (lambda value: json.dumps(value).encode()[:-10], "no strict JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_envelope_of_another_form_is_refused_and_says_why(name: str, sealed: tuple[bytes, Path]) -> None:
    change, said = REFUSED[name]
    with pytest.raises(VerificationError) as refused:
        dsse.read(change(json.loads(sealed[0])), "it")
    assert said in str(refused.value)


KEY = SigningKey(Ed25519PrivateKey.generate())
SEALED = dsse.seal(b'{"b":2}', KEY)


@given(st.integers(min_value=0, max_value=63), st.integers(min_value=0, max_value=7))
def test_no_bit_of_a_signature_can_be_changed(byte: int, bit: int) -> None:
    envelope = dsse.read(SEALED, "it")
    signature = bytearray(envelope.signature)
    signature[byte] ^= 1 << bit
    with pytest.raises(VerificationError, match="does not fit"):
        dsse.verify(dsse.Envelope(envelope.payload, envelope.key_id, bytes(signature)), KEY.public, "it")


@given(st.integers(min_value=0, max_value=len(SEALED) - 1), st.integers(min_value=0, max_value=255))
def test_whatever_byte_is_changed_nothing_else_is_believed(place: int, byte: int) -> None:
    data = SEALED[:place] + bytes([byte]) + SEALED[place + 1 :]
    try:
        envelope = dsse.read(data, "it")
        dsse.verify(envelope, KEY.public, "it")
    except VerificationError:
        assert data != SEALED
    else:
        assert (envelope.payload, envelope.key_id) == (b'{"b":2}', KEY.public.key_id)


@given(st.binary(max_size=200))
def test_bytes_of_a_stranger_are_a_verdict_and_no_crash(data: bytes) -> None:
    with pytest.raises(VerificationError):
        dsse.read(data, "it")
