"""A stand-in for ModelScope's public API and its Git: on loopback, with faults to script.

    with ModelScopeStandIn() as modelscope:           # or the fixture `modelscope` of tests/conftest.py
        modelscope.add("org/set", revision, {"data/test.jsonl": data})
        environment["MODELSCOPE_ENDPOINT"] = modelscope.url

It lists a commit's files page by page, serves small files itself (where it takes no notice of ranges, as the
real one), sends large ones by way of a storage that does, and names the newest commit of `master` to Git.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hub_standin import sha256
from served_bytes import Fault, Request, Served, Speaker

LARGE_BYTES = 100_000


class ModelScopeStandIn:
    """The host, and its storage of large files."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.storage_requests: list[Request] = []
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = defaultdict(dict)
        self.tells_digests = True
        self.elsewhere: str | None = None
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self._stack = ExitStack()

    def add(self, repository: str, revision: str, files: Mapping[str, bytes]) -> None:
        """Publish a commit; the last one is where `master` is."""
        self.repositories[repository][revision] = dict(files)

    def fail(self, path: str, *faults: Fault) -> None:
        """Let the next requests for a file go wrong; "tree" is for listings."""
        self._faults[path].extend(faults)

    def fault(self, path: str) -> Fault:
        """The fault that is due, used up."""
        return self._faults[path].pop(0) if self._faults[path] else Fault()

    def __enter__(self) -> ModelScopeStandIn:
        class AtHost(HostSpeaker):
            host = self

        class AtStorage(StorageSpeaker):
            host = self

        self.url = self._stack.enter_context(Served(AtHost)).url
        self.storage_url = self._stack.enter_context(Served(AtStorage)).url
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


class HostSpeaker(Speaker):
    """The host itself."""

    host: ModelScopeStandIn

    def answer(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        self.host.requests.append(self.request_seen())
        path, query = unquote(parts.path), parse_qs(parts.query)
        name, _, what = path.removeprefix("/api/v1/datasets/").partition("/repo")
        if path.startswith("/datasets/") and path.endswith(".git/info/refs"):
            self.refs(path.removeprefix("/datasets/").removesuffix(".git/info/refs"))
            return
        commits = self.host.repositories.get(name, {})
        revision = query.get("Revision", ["master"])[0]
        files = commits.get(list(commits)[-1] if commits and revision == "master" else revision)
        if not path.startswith("/api/v1/datasets/") or files is None:
            self.refuse()
        elif what == "/tree":
            self.tree(files, int(query["PageNumber"][0]), int(query["PageSize"][0]))
        else:
            self.file(files, query["FilePath"][0])

    def refuse(self) -> None:
        """Say that it is not there, as the API does."""
        body = json.dumps({"Code": 10010205001, "Message": "not found", "Success": False}).encode()
        self.send(404, body, {"Content-Type": "application/json"})

    def refs(self, name: str) -> None:
        """What Git asks first, in the form that needs no program at the other end."""
        if name not in self.host.repositories:
            self.send(404, b"")
            return
        newest = list(self.host.repositories[name])[-1]
        self.send(200, f"{newest}\trefs/heads/master\n".encode(), {"Content-Type": "text/plain"})

    def tree(self, files: Mapping[str, bytes], page: int, size: int) -> None:
        """One page of a commit's files, its folders among them."""
        fault = self.host.fault("tree")
        if fault.status:
            self.send(fault.status, fault.body or b"scripted", fault.headers)
            return
        folders = {path.rpartition("/")[0] for path in files} - {""}
        entries: list[dict[str, Any]] = [
            {"Path": path, "Type": "tree", "Size": 0} for path in sorted(folders)
        ]
        for path, data in sorted(files.items()):
            told = {"Sha256": sha256(data)} if self.host.tells_digests else {"Sha256": ""}
            entries.append(
                {"Path": path, "Name": path.rpartition("/")[2], "Type": "blob", "Size": len(data)} | told
            )
        shown = entries[(page - 1) * size : page * size]
        body = {"Code": 200, "Data": {"Files": shown}, "Success": True}
        self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def file(self, files: Mapping[str, bytes], path: str) -> None:
        """A file, or where it is."""
        if path not in files:
            self.refuse()
            return
        if self.host.elsewhere is not None or len(files[path]) >= LARGE_BYTES:
            place = self.host.elsewhere or self.host.storage_url
            self.send(
                302, b"", {"Location": f"{place}/{sha256(files[path])}?signature=secret&path={quote(path)}"}
            )
            return
        fault = self.host.fault(path)
        if fault.status:
            self.send(fault.status, b"scripted", fault.headers)
            return
        self.send_file(files[path], {}, replace(fault, whole=True))


class StorageSpeaker(Speaker):
    """The storage of large files."""

    host: ModelScopeStandIn

    def answer(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        self.host.storage_requests.append(self.request_seen())
        path = parse_qs(parts.query)["path"][0]
        every = [files for commits in self.host.repositories.values() for files in commits.values()]
        data = next(
            (files[path] for files in every if path in files and sha256(files[path]) == parts.path[1:]), None
        )
        fault = self.host.fault(path)
        if fault.status or data is None:
            self.send(fault.status or 404, b"scripted", fault.headers)
            return
        self.send_file(data, {}, fault)
