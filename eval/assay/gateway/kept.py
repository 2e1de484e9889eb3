"""A kept answer: what was asked, byte for byte, and what was answered, as one line of `answers/<job>.jsonl`.

The request's key is computed from its bytes and stands in the line all the same, so that a journal can be
opened without unpacking every prompt; whoever reads a line computes it again. Long bodies are deflated: a
streamed answer is mostly the frame around its words, and a prompt is mostly the one before.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.digest import sha256_bytes
from assay.errors import VerificationError
from assay.files import other_form
from assay.gateway.message import Answer, Request

DEFLATED_FROM_BYTES = 16 << 10
LONGEST_BODY_BYTES = 1 << 30  # no answer is longer, and what pretends to be is not unpacked
SCHEMA = "assay/answer/v2"
# Of a request; what else a client says of itself decides no answer, and may be a secret.
REQUEST_HEADERS = (b"content-type", b"accept", b"anthropic-version", b"anthropic-beta", b"openai-beta")


@dataclass(frozen=True)
class Kept:
    """A line, unpacked and found as it was written.

    Attributes:
        number: Its place in the order in which answers came: 0, 1, 2, …
        at: When it was written, ISO 8601.
        request: What was asked, with those of its headers that may decide an answer.
        answer: What was answered.
        digest: Over both.
    """

    number: int
    at: str
    request: Request
    answer: Answer
    digest: str


def line_of(number: int, request: Request, answer: Answer) -> bytes:
    """The line that keeps an answer, with its line feed."""
    told = _headers(request)
    body, form = _packed(answer.body)
    asked, asked_form = _packed(request.body)
    value = {
        "schema_version": SCHEMA,
        "number": number,
        "key": request.key,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "status": answer.status,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "endpoint": answer.endpoint,
        "seconds": answer.seconds,
        "headers": dict(answer.headers),
        "digest": _digest(request.key, told, answer),
        "form": form,
        "body": body,
        "request": {
            "method": request.method,
            "path": request.path,
            "headers": told,
            "form": asked_form,
            "body": asked,
        },
    }
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8") + b"\n"


def parsed(line: bytes) -> dict[str, Any]:
    """A line's value with its fields as they must be; nothing is unpacked yet, and no digest computed.

    Raises:
        ValueError: it is no kept answer.
    """
    try:
        value = json.loads(line)
        if other := other_form(value, SCHEMA):
            raise ValueError(f"it is of the form {other}, and this version reads {SCHEMA}")
        asked = value["request"]
        fits = (
            line.endswith(b"\n")
            and value["schema_version"] == SCHEMA
            and type(value["number"]) is int
            and value["number"] >= 0
            and len(bytes.fromhex(value["key"])) == len(bytes.fromhex(value["digest"])) == 32
            and type(value["status"]) is int
            and _texts(value["headers"])
            and _texts(asked["headers"])
            and all(isinstance(value[name], str) for name in ("at", "endpoint", "form", "body"))
            and all(isinstance(asked[name], str) for name in ("method", "path", "form", "body"))
            and all(type(value[name]) in (int, type(None)) for name in ("prompt_tokens", "completion_tokens"))
            and type(value["seconds"]) in (int, float, type(None))
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is no kept answer") from error
    if not fits:
        raise ValueError("it is no kept answer")
    return dict(value)


def unpacked(value: Mapping[str, Any]) -> Kept:
    """What a parsed line holds.

    Raises:
        ValueError: its request has another key, or its answer another digest.
    """
    asked = value["request"]
    try:
        request = Request(
            asked["method"],
            asked["path"],
            tuple(
                (name.encode("latin-1"), text.encode("latin-1")) for name, text in asked["headers"].items()
            ),
            _unpacked(asked["body"], asked["form"]),
        )
        key = request.key
    except (ValueError, zlib.error):
        key = ""
    if key != value["key"]:
        raise ValueError("its request has another key")
    try:
        body = _unpacked(value["body"], value["form"])
    except (ValueError, zlib.error):
        raise ValueError("its answer cannot be unpacked") from None
    answer = Answer(
        value["status"],
        value["headers"],
        body,
        value["prompt_tokens"],
        value["completion_tokens"],
        value["endpoint"],
        value["seconds"],
    )
    digest = _digest(key, asked["headers"], answer)
    if digest != value["digest"]:
        raise ValueError("its answer has another digest")
    return Kept(value["number"], value["at"], request, answer, digest)


def altered(path: Path, offset: int, why: str) -> VerificationError:
    """A line that is not as it was written."""
    return VerificationError(
        f"{path}: the line at byte {offset} is not as it was written",
        why,
        "a run whose kept answers were altered cannot go on: start a new one",
    )


def kept_answers(path: Path) -> Iterator[Kept]:
    """Every answer of a journal in its order, each line found as it was written; it changes nothing.

    One line is held at a time. A line that stands there twice is given once.

    Raises:
        VerificationError: a line is not as it was written, or not in its place.
        OSError: the file cannot be read.
    """
    offset = 0
    digests: list[bytes] = []
    with path.open("rb") as file:
        for line in file:
            try:
                kept = unpacked(parsed(line))
                digest = bytes.fromhex(kept.digest)
                if kept.number == len(digests):
                    digests.append(digest)
                    yield kept
                elif kept.number > len(digests) or digests[kept.number] != digest:
                    raise ValueError(f"number {kept.number} stands where {len(digests)} must")
            except ValueError as error:
                raise altered(path, offset, str(error)) from error
            offset += len(line)


def _headers(request: Request) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in request.headers
        if name in REQUEST_HEADERS
    }


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _digest(key: str, told: Mapping[str, str], answer: Answer) -> str:
    """SHA-256 over key, headers asked with, status, headers and counts as JSON, then the answer's body."""
    head = [
        *(key, dict(told)),
        *(answer.status, dict(answer.headers), answer.prompt_tokens, answer.completion_tokens),
    ]
    return sha256_bytes(
        json.dumps(head, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n" + answer.body
    )


def _packed(body: bytes) -> tuple[str, str]:
    """A body as text, and in which form."""
    if len(body) < DEFLATED_FROM_BYTES:
        try:
            return body.decode("utf-8"), "text"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(zlib.compress(body, 1)).decode("ascii"), "deflate"


def _unpacked(body: str, form: str) -> bytes:
    if form == "text":
        return body.encode("utf-8")
    if form == "deflate":
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(body, validate=True), LONGEST_BODY_BYTES)
        if not unpacking.eof or unpacking.unused_data:
            raise ValueError("it is cut, too long, or has a tail")
        return data
    raise ValueError(form)
