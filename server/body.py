"""A request's body: bounded, JSON only, and never a surprise to the code behind it.

Refused with 400: what is no JSON, no UTF-8, nested deeper than any request needs, holds NaN or Infinity,
names a key twice (which of the two was meant?), or a lone surrogate (which no tokenizer can read). Refused
with 408: a body that does not come in time. Refused with 413 before it is read whole: a body past the bound.
Refused with 415: another media type or a compressed body.
"""

from __future__ import annotations

import asyncio
import json
from typing import NoReturn

from starlette.requests import Request

from server.errors import ApiError, invalid

MAX_BODY_BYTES = 8 << 20
MAX_DEPTH = 64
BODY_SECONDS = 60  # from the end of a request's head to the end of its body


async def read_json(request: Request) -> object:
    """Return the body's JSON value; ApiError 400, 408, 413 or 415; ClientDisconnect when the client left."""
    _check_headers(request)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise _too_large()
                parts.append(part)
    except TimeoutError as error:
        raise _too_slow() from error
    return parse_json(b"".join(parts))


def _check_headers(request: Request) -> None:
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(415, f"the body must be application/json, not {media_type[:80]}", code="media_type")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ApiError(415, "the body must not be compressed", code="content_encoding")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
        raise _too_large()


def _too_large() -> ApiError:
    return ApiError(
        413,
        f"the body is larger than {MAX_BODY_BYTES} bytes",
        code="body_too_large",
        headers={"Connection": "close"},
    )


def _too_slow() -> ApiError:
    return ApiError(
        408,
        f"the body did not come within {BODY_SECONDS} seconds",
        code="request_timeout",
        headers={"Connection": "close"},
    )


def parse_json(body: bytes) -> object:
    """Return the value of JSON text in UTF-8; ApiError 400 says what is wrong."""
    try:
        value: object = json.loads(
            body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # JSONDecodeError, or an integer of thousands of digits
        raise invalid(f"the body is not valid JSON: {error}") from error
    _check_depth(value)
    if b"\\u" in body:
        _check_surrogates(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {ascii(twice)[:80]} stands twice in one object")
    return out


def _too_deep() -> ApiError:
    return invalid(f"the body is nested deeper than {MAX_DEPTH} levels")


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = [item for item in below if isinstance(item, dict | list)]
        if not level:
            return
    raise _too_deep()


def _check_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid("a string holds half of a surrogate pair") from error
