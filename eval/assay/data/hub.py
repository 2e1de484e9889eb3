"""Files of dataset repositories at their pinned commit, through the hub's own library.

It is imported only after `assay.data.library.prepare`. Each file is asked for twice: a HEAD says which
commit, size and digest the hub would serve, so that a changed file is refused before a byte of it comes; then
the library's `http_get` writes what is missing of it, going on where an earlier attempt broke off. (Its
`hf_hub_download` would begin again, and writes into a cache of another shape.) What came is hashed all the
same.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self, cast

import httpx2
from huggingface_hub import close_session, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import HfFileMetadata, get_hf_file_metadata, http_get

from assay import __version__
from assay.console import say
from assay.data.address import allowed, endpoint, origin, shown
from assay.data.partial import Partial
from assay.data.patience import PASSING, Patience, retry_after_s
from assay.data.pins import HubDataset, PinnedFile
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError

VARIABLE = "HF_ENDPOINT"
COPY = "take it from a copy: --mirror DIR"
# The library writes in pieces of ten megabytes, and what a cut body brought of one would be lost.
PIECE_BYTES = 1 << 20
# They log whole addresses, signed ones too, which `--verbose` would show.
CHATTY = ("httpx2", "httpcore2")
PRINTABLE = re.compile(r"[!-~]+")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Told(logging.Handler):
    """What the library warns of (that it waits, that it goes on) as lines of ours, signed addresses cut."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        words = record.getMessage().replace("\n", " ").split(" ")
        say("assay: hub: " + " ".join(shown(word) if "://" in word else word for word in words))


@dataclass(frozen=True)
class Offer:
    """Where the hub would serve a file from, and what is sent along."""

    url: str
    headers: dict[str, str]


class Hub:
    """The hub, to be used as a context."""

    def __init__(self) -> None:
        self.endpoint = endpoint(VARIABLE, constants.ENDPOINT)
        self._token = usable_token()
        self._logger = logging.getLogger("huggingface_hub")
        self._handlers = list(self._logger.handlers)
        self._piece = constants.DOWNLOAD_CHUNK_SIZE

    def get(self, dataset: HubDataset, file: PinnedFile, into: Partial, again: str) -> None:
        """Fetch what is missing of one file.

        Args:
            dataset: The repository and its commit.
            file: Which file of it.
            into: Where it grows.
            again: The command that goes on later.

        Raises:
            PrerequisiteError: the hub cannot be reached, has it no longer, or does not open it to this token.
            VerificationError: what it offers is not the pinned file.
        """
        into.came_from = f"{self.endpoint}/datasets/{dataset.repository}/{file.path}"
        patience = Patience(f"{dataset.name}/{file.path}")
        while not into.whole:
            before = into.size_bytes
            try:
                offer = self._offer(dataset, file, again)
                http_get(
                    offer.url,
                    cast("BinaryIO", into),
                    resume_size=before,
                    headers=offer.headers,
                    expected_size=file.size_bytes,
                    displayed_filename=file.path,
                )
            except HfHubHTTPError as error:
                problem = judged(error, dataset, file, again)
                status = error.response.status_code
                if status not in PASSING:
                    raise problem from error
                asked = retry_after_s(error.response.headers)
                patience.wait(problem, into.size_bytes > before, asked)
            except httpx2.HTTPError as error:
                why = str(error) or type(error).__name__
                silent = PrerequisiteError(f"{self.endpoint} does not answer", why, again)
                patience.wait(silent, into.size_bytes > before)
            except OSError as error:
                if error.errno is not None:
                    raise
                # The library's word for a body that was shorter than it should be.
                here = f"{into.size_bytes} of {file.size_bytes} bytes are here"
                short = PrerequisiteError("the body ended early", here, again)
                patience.wait(short, into.size_bytes > before)

    def _offer(self, dataset: HubDataset, file: PinnedFile, again: str) -> Offer:
        """Ask what would be served; VerificationError when it is not the pinned file of the pinned commit."""
        revision = dataset.revision
        url = hf_hub_url(
            dataset.repository, file.path, repo_type="dataset", revision=revision, endpoint=self.endpoint
        )
        found = get_hf_file_metadata(
            url,
            token=self._token or False,
            endpoint=self.endpoint,
            library_name="assay",
            library_version=__version__,
        )
        changed = difference(found, dataset, file)
        if changed:
            raise VerificationError(
                f"{dataset.repository}/{file.path} is not what datasets.lock pins",
                f"{changed}; none of it was fetched",
                f"its publisher has changed it; {COPY}",
            )
        if not allowed(found.location):
            raise PrerequisiteError(
                f"{self.endpoint} sends {file.path} by way of {shown(found.location)}",
                "only https, or http on this machine, is followed",
                again,
            )
        # As it is, not packed: a part of a packed body could not be continued.
        headers = {"User-Agent": f"assay/{__version__}", "Accept-Encoding": "identity"}
        if self._token and origin(found.location) == origin(url):
            headers["Authorization"] = f"Bearer {self._token}"
        return Offer(found.location, headers)

    def __enter__(self) -> Self:
        """The hub itself; what its library warns of is said in our words meanwhile."""
        self._logger.handlers = [Told(logging.WARNING)]
        constants.DOWNLOAD_CHUNK_SIZE = PIECE_BYTES
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the library's connections."""
        self._logger.handlers = self._handlers
        constants.DOWNLOAD_CHUNK_SIZE = self._piece
        close_session()


def usable_token() -> str | None:
    """The user's token, as the library finds it; ConfigurationError when no header could carry it."""
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    if token is not None and not PRINTABLE.fullmatch(token):
        # Before a client complains of the header and shows it.
        raise ConfigurationError(
            "the token for the hub is not one",
            "it holds something else than printable ASCII characters (it is not shown)",
            f"mend HF_TOKEN or {constants.HF_TOKEN_PATH}",
        )
    return token


def difference(found: HfFileMetadata, dataset: HubDataset, file: PinnedFile) -> str:
    """How the hub's word differs from the lock, in a clause; empty when it does not."""
    if found.commit_hash != dataset.revision:
        return f"the hub serves commit {found.commit_hash}, not {dataset.revision}"
    if found.size is not None and found.size != file.size_bytes:
        return f"the hub says {found.size} bytes, not {file.size_bytes}"
    etag = found.etag or ""
    # Of another form it is no digest of the content: a cache in between may have made one of its own.
    if DIGEST.fullmatch(etag) and len(etag) == len(file.digest) and etag != file.digest:
        return f"the hub says {file.algorithm} {etag}, not {file.digest}"
    return ""


def judged(error: HfHubHTTPError, dataset: HubDataset, file: PinnedFile, again: str) -> PrerequisiteError:
    """What the hub's refusal means, and what to do about it."""
    status = error.response.status_code
    said = f"{shown(str(error.response.url))} answered {status}"
    repository = dataset.repository
    # A gated repository is one kind of a missing one, to the library: it comes first.
    if isinstance(error, GatedRepoError):
        step = (
            "accept its conditions on the hub with your account, set HF_TOKEN to that account's token, then "
        )
        return PrerequisiteError(f"{repository} is gated", said, step + again)
    if isinstance(error, RevisionNotFoundError):
        return PrerequisiteError(f"{repository} has no commit {dataset.revision} (any more)", said, COPY)
    if isinstance(error, RemoteEntryNotFoundError):
        return PrerequisiteError(f"{repository} has no {file.path} (any more)", said, COPY)
    if isinstance(error, RepositoryNotFoundError):
        step = f"if it is private now, set HF_TOKEN, then {again}; else {COPY}"
        return PrerequisiteError(f"the hub shows no repository {repository}", said, step)
    if status == 401:
        return PrerequisiteError("the hub does not take this token", said, "mend or unset HF_TOKEN")
    if status == 429:
        return PrerequisiteError("the hub asks for patience", said, again)
    return PrerequisiteError("the hub is broken" if status >= 500 else "the hub refuses", said, again)
