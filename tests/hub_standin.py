"""A stand-in for the hub of data sets, as far as its libraries ask it: on loopback, with faults to script.

    with HubStandIn() as hub:                         # or the fixture `hub` of tests/conftest.py
        hub.add("org/name", revision, Path("folder")) # or a mapping of paths to bytes
        environment["HF_ENDPOINT"] = hub.url

It speaks what the real one does: information and tree of a repository at a revision, files by HEAD and GET
with `ETag`, `X-Repo-Commit`, `X-Linked-Etag` and `X-Linked-Size`, ranges, a relative redirect for small files
and one to another host with a signed address for large ones (which refuses any credential), and errors by
`X-Error-Code`. `main` is the revision that was added last. Large files are those whose path `large` accepts:
they are named by SHA-256, the others by Git's hash. `fail(path, Fault(...))` lets the next request for the
file go wrong, `fail(path, ..., at="head")` the next HEAD, `at="cdn"` the next request for its bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from served_bytes import Fault, Request, Served, Speaker

RESOLVE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
CACHED = re.compile(r"/api/resolve-cache/datasets/([^/]+/[^/]+)/([^/]+)/(.+)")
API = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(/.*)?)?")
BLOB = re.compile(r"/xet-bridge/([0-9a-f]{64})")


def git_sha1(data: bytes) -> str:
    """Git's hash of the bytes as a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    """The SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


def is_large(path: str) -> bool:
    """The hub's usual rule for data sets: tables and archives are large, texts are not."""
    return path.endswith((".parquet", ".arrow", ".gz", ".zip", ".bin"))


@dataclass
class Repository:
    """A repository: its commits' files, and who may read it."""

    revisions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    large: Callable[[str], bool] = is_large
    gated: bool = False


def lock_entry(
    name: str,
    repository: str,
    revision: str,
    files: Mapping[str, bytes],
    large: Callable[[str], bool] = is_large,
) -> str:
    """The dataset's table in a datasets.lock, with each file's digest as the hub would name it."""
    rows = []
    for path, data in files.items():
        key, digest = ("sha256", sha256(data)) if large(path) else ("git_sha1", git_sha1(data))
        rows.append(f'    {{ path = {json.dumps(path)}, size_bytes = {len(data)}, {key} = "{digest}" }},\n')
    return (
        f'[[dataset]]\nname = "{name}"\nsource = "hub"\nrepository = "{repository}"\n'
        f'revision = "{revision}"\nsize_bytes = {sum(map(len, files.values()))}\n'
        f"files = [\n{''.join(rows)}]\n\n"
    )


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


class HubStandIn:
    """The hub; `tokens` may read gated repositories, `known` are other accounts' valid ones."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.tokens: set[str] = set()
        self.known: set[str] = set()
        self.requests: list[Request] = []
        self.cdn_requests: list[Request] = []
        self._faults: dict[tuple[str, str], list[Fault]] = defaultdict(list)
        self._blobs: dict[str, bytes] = {}
        self._stack = ExitStack()

    def add(
        self,
        repository: str,
        revision: str,
        files: Path | Mapping[str, bytes],
        large: Callable[[str], bool] = is_large,
        gated: bool = False,
    ) -> None:
        """Publish a commit of a repository.

        Args:
            repository: `ORGANISATION/NAME`.
            revision: 40 hex digits.
            files: A folder, or bytes by path.
            large: Which paths are stored as large files.
            gated: Whether only `tokens` may read it.
        """
        held = self.repositories.setdefault(repository, Repository())
        held.large, held.gated = large, gated
        held.revisions[revision] = read_folder(files) if isinstance(files, Path) else dict(files)
        for data in held.revisions[revision].values():
            self._blobs[sha256(data)] = data

    def fail(self, path: str, *faults: Fault, at: str = "any") -> None:
        """Let the next requests for a file go wrong, one by one, at "head", "get", "cdn" or "any"."""
        self._faults[path, at].extend(faults)

    def fault(self, path: str, at: str) -> Fault:
        """The fault that is due for a request, used up; one without a fault when none is."""
        for key in ((path, at), (path, "any")):
            if self._faults[key]:
                return self._faults[key].pop(0)
        return Fault()

    def forget(self) -> None:
        """Drop the faults that were not used up."""
        self._faults.clear()

    def asked(self, method: str) -> list[str]:
        """The paths that were asked for by a method, at the hub itself."""
        return [request.path for request in self.requests if request.method == method]

    def __enter__(self) -> HubStandIn:
        class AtHub(HubSpeaker):
            hub = self

        class AtCdn(CdnSpeaker):
            hub = self

        self.url = self._stack.enter_context(Served(AtHub)).url
        self.cdn_url = self._stack.enter_context(Served(AtCdn)).url
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


class HubSpeaker(Speaker):
    """The hub itself."""

    hub: HubStandIn

    def answer(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.hub.requests.append(self.request_seen())
        for pattern, reply in ((RESOLVE, self.resolve), (CACHED, self.cached), (API, self.describe)):
            if found := pattern.fullmatch(path):
                reply(*found.groups())
                return
        self.refuse(404, "", "Not found")

    def refuse(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        """An error as the hub words it."""
        named = {"X-Error-Code": code} if code else {}
        body = json.dumps({"error": message}).encode()
        self.send(
            status,
            body,
            {"Content-Type": "application/json", **named, "X-Error-Message": message, **(headers or {})},
        )

    def opened(self, name: str, revision: str) -> tuple[str, dict[str, bytes], Repository] | None:
        """The commit that is asked for, if who asks may read it; else the refusal was sent."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.hub.repositories.get(name)
        if token and token not in self.hub.tokens | self.hub.known:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None:
            # Who is not known is not told whether it exists.
            self.refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif repository.gated and token not in self.hub.tokens:
            self.refuse(403 if token else 401, "GatedRepo", f"Access to dataset {name} is restricted.")
        else:
            commit = list(repository.revisions)[-1] if revision == "main" else revision
            if commit in repository.revisions:
                return commit, repository.revisions[commit], repository
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def resolve(self, name: str, revision: str, path: str) -> None:
        """A file: where it is, and what it is."""
        fault = self.hub.fault(path, "head" if self.command == "HEAD" else "get")
        if fault.status:
            self.refuse(fault.status, "", "scripted", fault.headers)
            return
        found = self.opened(name, revision)
        if found is None:
            return
        commit, files, repository = found
        if path not in files:
            self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return
        data = files[path]
        digest = sha256(data) if repository.large(path) else git_sha1(data)
        told = {
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(len(data)),
            "X-Linked-Etag": f'"{digest}"',
            "Vary": "Origin, Accept",
        }
        if repository.large(path):
            query = f"?X-Signature=secret&path={quote(path, safe='')}"
            told["Location"] = f"{self.hub.cdn_url}/xet-bridge/{sha256(data)}{query}"
            self.send(302, b"Found. Redirecting", told | dict(fault.headers))
        else:
            told["Location"] = (
                f"/api/resolve-cache/datasets/{name}/{commit}/{quote(path)}?etag=%22{digest}%22"
            )
            self.send(307, b"Temporary Redirect", told | dict(fault.headers))

    def cached(self, name: str, revision: str, path: str) -> None:
        """A small file's bytes."""
        found = self.opened(name, revision)
        if found is None:
            return
        commit, files, _ = found
        fault = self.hub.fault(path, "cdn" if self.command == "GET" else "cdn-head")
        if fault.status:
            self.refuse(fault.status, "", "scripted", fault.headers)
            return
        headers = {"ETag": f'"{git_sha1(files[path])}"', "X-Repo-Commit": commit}
        self.send_file(files[path], headers, fault)

    def describe(self, name: str, kind: str | None, revision: str | None, below: str | None) -> None:
        """What is in a repository."""
        found = self.opened(name, revision or "main")
        if found is None:
            return
        commit, files, repository = found
        query = parse_qs(urlsplit(self.path).query)
        entries = [entry(path, data, repository.large(path)) for path, data in sorted(files.items())]
        if kind == "tree":
            body: Any = tree(entries, (below or "/")[1:], query.get("recursive", [""])[0].lower() == "true")
        else:
            with_blobs = query.get("blobs", [""])[0].lower() == "true"
            siblings = [
                {"rfilename": item["path"]}
                | ({"size": item["size"], "blobId": item["oid"], "lfs": lfs(item)} if with_blobs else {})
                for item in entries
            ]
            gated = "auto" if repository.gated else False
            body = {"_id": "0", "id": name, "sha": commit, "private": False, "gated": gated, "tags": []}
            body |= {"siblings": siblings, "disabled": False, "downloads": 0, "likes": 0}
        self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def entry(path: str, data: bytes, large: bool) -> dict[str, Any]:
    """A file in a tree."""
    found: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
    if large:
        found["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 134}
    return found


def lfs(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """How a repository's information names a large file."""
    held = item.get("lfs")
    return {"sha256": held["oid"], "size": held["size"], "pointerSize": held["pointerSize"]} if held else None


def tree(entries: list[dict[str, Any]], below: str, recursive: bool) -> list[dict[str, Any]]:
    """The entries below a folder, with the folders among them."""
    prefix = f"{below}/" if below else ""
    inside = [item for item in entries if item["path"].startswith(prefix)]
    folders: dict[str, None] = {}
    for item in inside:
        parts = item["path"][len(prefix) :].split("/")[:-1]
        for depth in range(1, len(parts) + 1 if recursive else min(len(parts), 1) + 1):
            folders[prefix + "/".join(parts[:depth])] = None
    shown = inside if recursive else [item for item in inside if "/" not in item["path"][len(prefix) :]]
    return [{"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in folders] + shown


class CdnSpeaker(Speaker):
    """The host of large files: it takes a signature and, as the real ones, no other credential beside it."""

    hub: HubStandIn

    def answer(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        self.hub.cdn_requests.append(self.request_seen())
        found = BLOB.fullmatch(parts.path)
        data = self.hub._blobs.get(found[1]) if found else None
        if data is None or query.get("X-Signature") != ["secret"]:
            self.send(403, b"AccessDenied")
            return
        if "Authorization" in self.headers:
            self.send(400, b"Only one auth mechanism allowed")
            return
        fault = self.hub.fault(query["path"][0], "cdn")
        if fault.status:
            self.send(fault.status, b"scripted", fault.headers)
            return
        # Its own tag: this host knows nothing of the hub's.
        self.send_file(data, {"ETag": f'"{hashlib.md5(data).hexdigest()}"'}, fault)
