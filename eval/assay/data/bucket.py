"""Objects of a public bucket, each at its pinned generation, over HTTPS, continued where they broke off.

`ASSAY_BUCKET_ENDPOINT` names another host that speaks the same protocol: over TLS, or on this machine. A
generation names one content for ever, so a part of it may be continued after any time; that each answer is of
the pinned generation, and begins where the part ends, is checked before a byte of it is written.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx

from assay import __version__
from assay.data.address import endpoint
from assay.data.continued import PassingError, begin
from assay.data.partial import Partial
from assay.data.patience import PASSING, Patience, retry_after_s
from assay.data.pins import BucketDataset, PinnedObject
from assay.errors import AssayError, PrerequisiteError, VerificationError

VARIABLE = "ASSAY_BUCKET_ENDPOINT"
HOST = "https://storage.googleapis.com"
TIMEOUT = httpx.Timeout(30.0, connect=15.0)


class Bucket:
    """A host of buckets, to be used as a context."""

    def __init__(self) -> None:
        self.endpoint = endpoint(VARIABLE, HOST)
        headers = {"User-Agent": f"assay/{__version__}", "Accept-Encoding": "identity"}
        self._client = httpx.Client(timeout=TIMEOUT, headers=headers, follow_redirects=False)

    def get(self, dataset: BucketDataset, file: PinnedObject, into: Partial, again: str) -> None:
        """Fetch what is missing of one object.

        Raises:
            PrerequisiteError: the host cannot be reached, or has the object no longer.
            VerificationError: what it offers is not the pinned object.
        """
        url = f"{self.endpoint}/{dataset.bucket}/{quote(file.path, safe='')}?generation={file.generation}"
        into.came_from = f"{self.endpoint}/{dataset.bucket}/{file.path}"
        patience = Patience(f"{dataset.name}/{file.path}")
        while not into.whole:
            before = into.size_bytes
            asked = None
            try:
                headers = {"Range": f"bytes={before}-"} if before else {}
                with self._client.stream("GET", url, headers=headers) as answer:
                    asked = retry_after_s(answer.headers)
                    self._require_wanted(answer, dataset, file, into, again)
                    for chunk in answer.iter_raw():
                        into.write(chunk)
                problem: AssayError = PrerequisiteError(
                    "the body ended early", f"{into.size_bytes} of {file.size_bytes} bytes are here", again
                )
            except httpx.TransportError as error:
                problem = PrerequisiteError(
                    f"{self.endpoint} does not answer", str(error) or type(error).__name__, again
                )
            except PassingError as error:
                problem = error
            if not into.whole:
                patience.wait(problem, into.size_bytes > before, asked)

    def _require_wanted(
        self, answer: httpx.Response, dataset: BucketDataset, file: PinnedObject, into: Partial, again: str
    ) -> None:
        """Go on only if the body is the pinned object, from where the part that is here ends."""
        status = answer.status_code
        where = f"{dataset.bucket}/{file.path}"
        if status in PASSING:
            raise PassingError("the bucket asks for patience", f"status {status}", again)
        if status not in (200, 206):
            said = {404: "that generation is not there (any more)", 403: "it may not be read"}
            raise PrerequisiteError(
                f"{where} cannot be had at generation {file.generation}",
                f"{self.endpoint} answered {status}: {said.get(status, answer.reason_phrase)}",
                "take it from a copy: --mirror DIR",
            )
        generation = answer.headers.get("x-goog-generation")
        if generation != file.generation:
            raise VerificationError(
                f"{where} came at generation {generation}, but datasets.lock pins {file.generation}",
                "none of it was written",
                again,
            )
        begin(answer, file, into, where, again)

    def __enter__(self) -> Self:
        """The host itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        self._client.close()
