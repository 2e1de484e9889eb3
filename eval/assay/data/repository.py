"""Repositories read by plain HTTP, one file of one commit at a time, continued where they broke off.

A host is asked for one file of one commit. It serves that itself, or by way of a storage it names; every hop
is over TLS or on this machine, and the bytes are hashed all the same. What a branch's newest commit is, only
its Git tells.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urljoin

import httpx

from assay import __version__
from assay.data.address import allowed, endpoint, shown
from assay.data.continued import PassingError, begin
from assay.data.partial import Partial
from assay.data.patience import PASSING, Patience, retry_after_s
from assay.data.pins import PinnedFile, RepositoryDataset
from assay.errors import AssayError, PrerequisiteError
from assay.sources.git import environment, last_words

TIMEOUT = httpx.Timeout(30.0, connect=15.0)
GIT_TIMEOUT_S = 120.0
HOPS = 5
# Of a file whose size nobody tells.
MAXIMUM_BYTES = 1 << 30
COPY = "take it from a copy: --mirror DIR"


@dataclass(frozen=True)
class Listed:
    """A file as the host tells of it; nothing of that is believed.

    Attributes:
        path: Its path in the repository.
        size_bytes: Its size; None where the host tells none.
        sha256: Its digest; None where the host tells none.
    """

    path: str
    size_bytes: int | None = None
    sha256: str | None = None


class Host(ABC):
    """A host of repositories, to be used as a context.

    Attributes:
        endpoint: Its base URL.
    """

    variable: str
    default: str

    def __init__(self) -> None:
        self.endpoint = endpoint(self.variable, self.default)
        headers = {"User-Agent": f"assay/{__version__}", "Accept-Encoding": "identity"}
        # Every hop is looked at, so none is followed by itself.
        self._client = httpx.Client(timeout=TIMEOUT, headers=headers, follow_redirects=False)

    @abstractmethod
    def address(self, repository: str, revision: str, path: str) -> httpx.URL:
        """Where a file of a commit is asked for."""

    @abstractmethod
    def git(self, repository: str) -> str:
        """Where the repository's Git is."""

    @abstractmethod
    def files(self, repository: str, revision: str, again: str) -> list[Listed] | None:
        """Every file of a commit; None where the host lists none.

        Raises:
            PrerequisiteError: the host cannot be reached, or what it lists cannot be read.
        """

    def get(self, dataset: RepositoryDataset, file: PinnedFile, into: Partial, again: str) -> None:
        """Fetch what is missing of one file.

        Raises:
            PrerequisiteError: the host cannot be reached, or has the file no longer.
            VerificationError: what it offers is not the pinned file.
        """
        where = f"{dataset.repository}/{file.path}"
        into.came_from = f"{self.endpoint}: {where}"
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
        address = self.git(repository)
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

    def seen(self, repository: str, revision: str, path: str, again: str) -> Listed:
        """A file's size and digest, by its bytes as the host serves them.

        Raises:
            PrerequisiteError: it cannot be had, or is larger than `MAXIMUM_BYTES`.
        """
        found, count = hashlib.sha256(), 0
        where = f"{repository}/{path}"
        try:
            with self._body(repository, revision, path, 0, again) as answer:
                require_here(answer, where, revision, again)
                told = answer.headers.get("Content-Length")
                for chunk in answer.iter_raw():
                    count += len(chunk)
                    if count > MAXIMUM_BYTES:
                        raise PrerequisiteError(
                            f"{where} is larger than {MAXIMUM_BYTES} bytes", "", "pin it by hand"
                        )
                    found.update(chunk)
        except httpx.TransportError as error:
            raise self._silent(error, again) from error
        if told is not None and int(told) != count:
            raise PrerequisiteError(f"{where} did not come whole", f"{count} of {told} bytes came", again)
        return Listed(path, count, found.hexdigest())

    @contextmanager
    def _body(
        self, repository: str, revision: str, path: str, at: int, again: str
    ) -> Iterator[httpx.Response]:
        """The answer that has the file's bytes from a place on, after every hop that leads there."""
        address = self.address(repository, revision, path)
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
