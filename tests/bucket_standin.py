"""A stand-in for a host of buckets whose objects have generations: on loopback, with faults to script.

    with BucketStandIn() as bucket:                   # or the fixture `bucket` of tests/conftest.py
        bucket.put("name", "object", 17, data)
        environment["ASSAY_BUCKET_ENDPOINT"] = bucket.url

An object keeps every generation that was put; asked without one it gives the last. `x-goog-generation` and
`x-goog-hash` come with each, a generation that is not there is a 404, and ranges are answered.
`fail(object, Fault(...))` lets the next request for the object go wrong.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from contextlib import ExitStack
from urllib.parse import parse_qs, unquote, urlsplit

from served_bytes import Fault, Request, Served, Speaker


class BucketStandIn:
    """The host."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._objects: dict[tuple[str, str], dict[int, bytes]] = defaultdict(dict)
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self._stack = ExitStack()

    def put(self, bucket: str, name: str, generation: int, data: bytes) -> None:
        """Publish an object at a generation, beside those it has."""
        self._objects[bucket, name][generation] = data

    def fail(self, name: str, *faults: Fault) -> None:
        """Let the next requests for an object go wrong, one after the other."""
        self._faults[name].extend(faults)

    def forget(self) -> None:
        """Drop the faults that were not used up."""
        self._faults.clear()

    def __enter__(self) -> BucketStandIn:
        class Handler(BucketSpeaker):
            host = self

        self.url = self._stack.enter_context(Served(Handler)).url
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


class BucketSpeaker(Speaker):
    """Answers for the host."""

    host: BucketStandIn

    def answer(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        self.host.requests.append(self.request_seen())
        faults = self.host._faults[name]
        fault = faults.pop(0) if faults else Fault()
        if fault.status:
            self.send(fault.status, b"<Error/>", fault.headers)
            return
        generations = self.host._objects.get((bucket, name), {})
        latest = str(max(generations, default=0))
        generation = int(parse_qs(parts.query).get("generation", [latest])[0])
        if generation not in generations:
            body = (
                b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"
            )
            self.send(404, body, {"Content-Type": "application/xml"})
            return
        data = generations[generation]
        md5 = hashlib.md5(data)
        headers = {
            "x-goog-generation": str(generation),
            "x-goog-metageneration": "1",
            "x-goog-hash": f"md5={base64.b64encode(md5.digest()).decode()}",
            "x-goog-stored-content-length": str(len(data)),
            "x-goog-stored-content-encoding": "identity",
            "ETag": f'"{md5.hexdigest()}"',
        }
        self.send_file(data, headers | dict(fault.headers), Fault(**{**fault.__dict__, "headers": {}}))
