"""Dataset repositories of ModelScope, at a commit, over its public API, continued where they broke off.

`MODELSCOPE_ENDPOINT` names another host that speaks the same, as for its own library (which is not used here:
it brings a cache of its own shape, and a session that follows whatever it is told to). What a branch's newest
commit is, only its Git tells. A file is served by the host itself or by way of a storage it names; every hop
is over TLS or on this machine, and the bytes are hashed all the same.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin

import httpx

from assay import __version__
from assay.data.address import allowed, endpoint, shown
from assay.data.continued import PassingError, begin
from assay.data.partial import Partial
from assay.data.patience import PASSING, Patience, retry_after_s
from assay.data.pins import ModelScopeDataset, PinnedFile
from assay.errors import AssayError, PrerequisiteError
from assay.sources.git import environment, last_words

VARIABLE = "MODELSCOPE_ENDPOINT"
HOST = "https://www.modelscope.cn"
TIMEOUT = httpx.Timeout(30.0, connect=15.0)
GIT_TIMEOUT_S = 120.0
HOPS = 5
PAGE = 200
LISTED = 20_000
LISTING_BYTES = 16 << 20
COPY = "take it from a copy: --mirror DIR"
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Listed:
    """A file as the host lists it; nothing of it is believed.

    Attributes:
        path: Its path in the repository.
        size_bytes: Its size.
        sha256: Its digest; None where the host tells none.
    """

    path: str
    size_bytes: int
    sha256: str | None


class ModelScope:
    """The host, to be used as a context."""

    def __init__(self) -> None:
        self.endpoint = endpoint(VARIABLE, HOST)
        headers = {"User-Agent": f"assay/{__version__}", "Accept-Encoding": "identity"}
        # Every hop is looked at, so none is followed by itself; nothing of the environment decides.
        self._client = httpx.Client(timeout=TIMEOUT, headers=headers, follow_redirects=False)

    def get(self, dataset: ModelScopeDataset, file: PinnedFile, into: Partial, again: str) -> None:
        """Fetch what is missing of one file.

        Raises:
            PrerequisiteError: the host cannot be reached, or has the file no longer.
            VerificationError: what it offers is not the pinned file.
        """
        where = f"{dataset.repository}/{file.path}"
        into.came_from = f"{self.endpoint}/datasets/{where}"
        patience = Patience(f"{dataset.name}/{file.path}")
        while not into.whole:
            before, asked = into.size_bytes, None
            try:
                with self._body(dataset.repository, dataset.revision, file.path, before, again) as answer:
                    asked = retry_after_s(answer.headers)
                    require_here(answer, where, dataset.revision, again)
                    begin(answer, file, into, where, again)
                    for chunk in answer.iter_raw():
                        into.write(chunk)
                here = f"{into.size_bytes} of {file.size_bytes} bytes are here"
                problem: AssayError = PrerequisiteError("the body ended early", here, again)
            except httpx.TransportError as error:
                problem = self._silent(error, again)
            except PassingError as error:
                problem = error
            if not into.whole:
                patience.wait(problem, into.size_bytes > before, asked)

    def commit(self, repository: str, branch: str, again: str) -> str:
        """The newest commit of a branch, as its Git tells.

        Raises:
            PrerequisiteError: there is no Git, it cannot be reached, or there is no such branch.
        """
        address = f"{self.endpoint}/datasets/{repository}.git"
        words = ["git", "ls-remote", "--exit-code", address, f"refs/heads/{branch}"]
        try:
            done = subprocess.run(
                words,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise PrerequisiteError("there is no Git", str(error), "install Git") from error
        except subprocess.TimeoutExpired as error:
            raise PrerequisiteError(f"{address} does not answer", str(error), again) from error
        told = re.match(rb"([0-9a-f]{40})\t", done.stdout)
        if done.returncode != 0 or told is None:
            raise PrerequisiteError(f"{address} names no branch {branch}", last_words(done.stderr), again)
        return told[1].decode("ascii")

    def files(self, repository: str, revision: str, again: str) -> list[Listed]:
        """Every file of a commit.

        Raises:
            PrerequisiteError: the host cannot be reached, or what it lists cannot be read.
        """
        found: list[Listed] = []
        page = 0
        while len(found) < LISTED:
            page += 1
            entries = self._page(repository, revision, page, again)
            found += [each for each in map(listed, entries) if each is not None]
            if len(entries) < PAGE:
                return found
        raise PrerequisiteError(f"{repository} holds more than {LISTED} files", "", "pin it by hand")

    def digest(self, repository: str, revision: str, file: Listed, again: str) -> str:
        """SHA-256 of a file's bytes as the host serves them.

        Raises:
            PrerequisiteError: it cannot be had.
        """
        found, count = hashlib.sha256(), 0
        try:
            with self._body(repository, revision, file.path, 0, again) as answer:
                require_here(answer, f"{repository}/{file.path}", revision, again)
                for chunk in answer.iter_raw():
                    count += len(chunk)
                    if count > file.size_bytes:
                        break
                    found.update(chunk)
        except httpx.TransportError as error:
            raise self._silent(error, again) from error
        if count != file.size_bytes:
            told = f"{file.size_bytes} bytes are listed, and another number came"
            raise PrerequisiteError(f"{repository}/{file.path} did not come whole", told, again)
        return found.hexdigest()

    @contextmanager
    def _body(
        self, repository: str, revision: str, path: str, at: int, again: str
    ) -> Iterator[httpx.Response]:
        """The answer that has the file's bytes from a place on, after every hop that leads there."""
        address = httpx.URL(
            f"{self.endpoint}/api/v1/datasets/{repository}/repo",
            params={"Revision": revision, "FilePath": path},
        )
        headers = {"Range": f"bytes={at}-"} if at else {}
        for _ in range(HOPS):
            with self._client.stream("GET", address, headers=headers) as answer:
                if not answer.has_redirect_location:
                    yield answer
                    return
                there = urljoin(str(address), answer.headers["Location"])
            if not allowed(there):
                raise PrerequisiteError(
                    f"{self.endpoint} sends {path} by way of {shown(there)}",
                    "only https, or http on this machine, is followed",
                    again,
                )
            address = httpx.URL(there)
        raise PrerequisiteError(f"{self.endpoint} sends {path} round in circles", "", again)

    def _page(self, repository: str, revision: str, page: int, again: str) -> list[dict[str, Any]]:
        query: dict[str, str | int] = {
            "Revision": revision,
            "Recursive": "True",
            "PageNumber": page,
            "PageSize": PAGE,
        }
        patience = Patience(f"{repository}: its files")
        while True:
            asked = None
            try:
                answer = self._client.get(
                    f"{self.endpoint}/api/v1/datasets/{repository}/repo/tree", params=query
                )
                asked = retry_after_s(answer.headers)
                require_here(answer, f"{repository}: its files", revision, again)
                return entries_of(answer, repository, again)
            except httpx.TransportError as error:
                problem: AssayError = self._silent(error, again)
            except PassingError as error:
                problem = error
            patience.wait(problem, False, asked)

    def _silent(self, error: httpx.TransportError, again: str) -> PrerequisiteError:
        return PrerequisiteError(
            f"{self.endpoint} does not answer", str(error) or type(error).__name__, again
        )

    def __enter__(self) -> Self:
        """The host itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        self._client.close()


def require_here(answer: httpx.Response, where: str, revision: str, again: str) -> None:
    """Go on only if the answer has what was asked for (200 or 206)."""
    status = answer.status_code
    if status in PASSING:
        raise PassingError("the host asks for patience", f"status {status}", again)
    if status not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
        said = {404: "it is not there (any more)", 403: "it may not be read"}
        told = f"{shown(str(answer.url))} answered {status}: {said.get(status, answer.reason_phrase)}"
        raise PrerequisiteError(f"{where} cannot be had at commit {revision}", told, COPY)


def entries_of(answer: httpx.Response, repository: str, again: str) -> list[dict[str, Any]]:
    """What a page lists; PrerequisiteError when it is nothing that can be read."""
    try:
        if len(answer.content) > LISTING_BYTES:
            raise ValueError("it is too long")
        data = answer.json()["Data"]
        entries = data["Files"] if isinstance(data, dict) else data
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError("it is no list of files")
    except (ValueError, KeyError, TypeError) as error:
        raise PrerequisiteError(f"what is told of {repository} cannot be read", repr(error), again) from error
    return entries


def listed(entry: dict[str, Any]) -> Listed | None:
    """A file of a listing; None for a folder, and for what has no path or no size."""
    path, size, digest = entry.get("Path"), entry.get("Size"), entry.get("Sha256")
    if entry.get("Type") == "tree" or not isinstance(path, str) or type(size) is not int:
        return None
    told = digest.lower() if isinstance(digest, str) else ""
    return Listed(path, size, told if SHA256.fullmatch(told) else None)
