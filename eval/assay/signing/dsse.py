"""DSSE envelopes: exactly one Ed25519 signature over exactly these bytes, in exactly one spelling.

What is signed is PAE(type, payload) of the DSSE protocol, version 1; the payload's own bytes stand in the
envelope, so that nobody has to write them again to verify them. A reader bounds what he reads before he
parses it, and refuses every other spelling of the same content: a stranger's file is no place for choices.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from assay.errors import VerificationError
from assay.files import json_text
from assay.signing.key import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
LARGEST_BYTES = 16 << 20
SIGNATURE_BYTES = 64
AGAIN = "restore it from where you got it"


@dataclass(frozen=True)
class Envelope:
    """An envelope as it was read; nothing of it is believed yet.

    Attributes:
        payload: The bytes that were signed, as it says.
        key_id: Whose signature it is, as it says.
        signature: 64 bytes.
    """

    payload: bytes
    key_id: str
    signature: bytes


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what a signature covers."""
    name = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def seal(payload: bytes, key: SigningKey) -> bytes:
    """The payload in a signed envelope, as the file's bytes.

    Raises:
        VerificationError: it is larger than anybody would read.
    """
    signature = key.sign(pae(PAYLOAD_TYPE, payload))
    value = {
        "payload": base64.b64encode(payload).decode("ascii"),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": key.public.key_id, "sig": base64.b64encode(signature).decode("ascii")}],
    }
    data = json_text(value).encode("ascii")
    if len(data) > LARGEST_BYTES:
        raise VerificationError(f"a statement of {len(data)} bytes is not written", f"over {LARGEST_BYTES}")
    return data


def read(data: bytes, name: str) -> Envelope:
    """The envelope in a file's bytes; its signature is not looked at.

    Args:
        data: At most `LARGEST_BYTES`.
        name: What it is, for an error.

    Raises:
        VerificationError: it is not exactly what `seal` writes, but for white space between its parts.
    """
    if len(data) > LARGEST_BYTES:
        raise unfit(name, f"it is larger than {LARGEST_BYTES} bytes")
    value = strict_json(data, name)
    try:
        if value.keys() != {"payload", "payloadType", "signatures"}:
            raise ValueError(f"it holds {', '.join(sorted(map(repr, value)))}")
        if value["payloadType"] != PAYLOAD_TYPE:
            raise ValueError(f"its payload is {value['payloadType']!r}, not {PAYLOAD_TYPE!r}")
        if not isinstance(value["signatures"], list) or len(value["signatures"]) != 1:
            raise ValueError("it does not have exactly one signature")
        signed = value["signatures"][0]
        if signed.keys() != {"keyid", "sig"} or not isinstance(signed["keyid"], str):
            raise ValueError("its signature is not a keyid and a sig")
        payload, signature = _bytes(value["payload"], "payload"), _bytes(signed["sig"], "sig")
        if len(signature) != SIGNATURE_BYTES:
            raise ValueError(f"its signature has {len(signature)} bytes, not {SIGNATURE_BYTES}")
    except (ValueError, TypeError, AttributeError) as error:
        raise unfit(name, str(error)) from error
    return Envelope(payload, signed["keyid"], signature)


def verify(envelope: Envelope, key: PublicKey, name: str) -> None:
    """Hold an envelope against the one key that is believed.

    Raises:
        VerificationError: the signature is another key's or over other bytes, or it lies about whose it is.
    """
    if key.verifies(envelope.signature, pae(PAYLOAD_TYPE, envelope.payload)):
        if envelope.key_id == key.key_id:
            return
        raise unfit(name, f"the signature is of the key {key.key_id}, and names {envelope.key_id!r}")
    if envelope.key_id == key.key_id:
        raise unfit(name, f"the signature does not fit these bytes and the key {key.key_id}")
    raise unfit(name, f"it is signed by another key, {envelope.key_id!r}, and not by {key.key_id}")


def strict_json(data: bytes, name: str) -> dict[str, Any]:
    """The JSON object in these bytes, in UTF-8, no name in it twice, no number that JSON has not.

    Raises:
        VerificationError: it is none.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise unfit(name, f"it is no strict JSON: {error}") from error
    if not isinstance(value, dict):
        raise unfit(name, "it is no JSON object")
    return value


def unfit(name: str, why: str) -> VerificationError:
    """The error that says why signed bytes are not believed."""
    return VerificationError(f"{name} is not verified", why, AGAIN)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _bytes(text: Any, name: str) -> bytes:
    """What a base64 text says, if it is the one standard spelling of it."""
    try:
        found = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        found = b""
    if not found or base64.b64encode(found).decode("ascii") != text:
        raise ValueError(f"its {name} is not standard base64")
    return found
