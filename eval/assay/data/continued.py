"""Where an answer's body belongs in a file that is being fetched: at its start, or where it broke off."""

from __future__ import annotations

import re

import httpx

from assay.data.partial import Partial
from assay.data.pins import PinnedFile
from assay.errors import PrerequisiteError, VerificationError

RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class PassingError(PrerequisiteError):
    """The host is busy or broken, and may answer later."""


def begin(answer: httpx.Response, file: PinnedFile, into: Partial, where: str, again: str) -> None:
    """Go on only if the body fits; a body that begins anew drops what is there.

    Args:
        answer: With the status 200 or 206, its body not read yet.
        file: What is fetched.
        into: Where it grows.
        where: What the file is called in an error.
        again: The command that goes on later.

    Raises:
        VerificationError: the file is of another size there, or another part of it came.
    """
    start, total = 0, answer.headers.get("Content-Length")
    if answer.status_code == httpx.codes.PARTIAL_CONTENT:
        found = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        start, total = (int(found[1]), found[3]) if found else (-1, None)
    if total is not None and int(total) != file.size_bytes:
        raise VerificationError(
            f"{where} has {total} bytes, but datasets.lock says {file.size_bytes}",
            "none of it was written",
            again,
        )
    if answer.status_code == httpx.codes.OK:
        into.restart()
    elif start != into.size_bytes:
        raise VerificationError(
            f"{where} was to go on at byte {into.size_bytes}, but another part came",
            f"Content-Range: {answer.headers.get('Content-Range')}; none of it was written",
            again,
        )
