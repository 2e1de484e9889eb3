"""Frozen inputs as materials: each by its digest, and by its address where it has one that names its bytes.

Addresses come out of the run's own copies of the locks, so that the statement follows from the run alone:
`git+…@COMMIT` for a source (SPDX's form), `hf://` as the hub's file system has it, `gs://…#GENERATION` for an
object of a bucket, a package URL for a model in a wheel, and a Software Heritage identifier, which is Git's
own name of the content, for a file of this checkout. A tree or an environment is named by its digest alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote

from assay.signing.predicate import Checkout, Descriptor
from assay.signing.reading import Reading
from assay.sources.tree import object_name

PINS = "provenance/pins/"
LAUNCH = "provenance/launch/"
TREES = ("tree", "source", "environment")


class Materials:
    """The materials of one run.

    Args:
        run: Its directory.
        checkout: What it was made from.
    """

    def __init__(self, run: Reading, checkout: Checkout) -> None:
        self._run = run
        self._commit = checkout.commit if checkout.clean else None
        self._inputs = run.texts("provenance/inputs.before.json", "inputs")

    def all(self) -> tuple[Descriptor, ...]:
        """One for each frozen input, by name."""
        return tuple(self._one(name, digest) for name, digest in sorted(self._inputs.items()))

    def _one(self, name: str, digest: str) -> Descriptor:
        kind, _, rest = name.partition(":")
        address = self._addresses.get(kind)
        digests = {"assayTree" if kind in TREES else "sha256": digest.removeprefix("sha256:")}
        if kind == "source" and (revision := _text(self._source(rest), "revision")):
            digests["gitCommit"] = revision
        return Descriptor(name=name, uri=None if address is None else address(rest), digest=digests)

    @cached_property
    def _addresses(self) -> Mapping[str, Callable[[str], str | None]]:
        return {
            "file": lambda path: self._content(PINS + path, path),
            "launch": self._launch,
            "source": self._revision,
            "model": self._model,
            "data": self._data,
        }

    def _content(self, copy: str, path: str | None = None) -> str | None:
        data = self._run.bytes(copy)
        if data is None:
            return None
        anchor = "" if self._commit is None else f";anchor=swh:1:rev:{self._commit}"
        where = "" if path is None else f";path=/{quote(path)}"
        return f"swh:1:cnt:{object_name('blob', data)}{anchor}{where}"

    def _launch(self, rest: str) -> str | None:
        # A launch file is a text of the plan: where it lies in a checkout, the plan does not say.
        data = self._run.bytes(LAUNCH + rest)
        return None if data is None else f"swh:1:cnt:{object_name('blob', data)}"

    def _source(self, name: str) -> Mapping[str, Any]:
        found = self._run.json("provenance/sources.json").get(name)
        return found if isinstance(found, dict) else {}

    def _revision(self, name: str) -> str | None:
        source = self._source(name)
        repository, revision = _text(source, "repository"), _text(source, "revision")
        return f"git+{repository}@{revision}" if repository and revision else None

    def _model(self, name: str) -> str | None:
        pin = self._locked("models.lock", "model").get(name, {})
        words = [_text(pin, key) for key in ("distribution", "version", "wheel", "wheel_sha256", "member")]
        if not all(words):
            return None
        distribution, version, wheel, digest, member = (quote(word or "", safe="/") for word in words)
        query = f"checksum=sha256:{digest}&file_name={wheel}"
        return f"pkg:pypi/{distribution.lower().replace('_', '-')}@{version}?{query}#{member}"

    def _data(self, rest: str) -> str | None:
        name, _, path = rest.partition("/")
        pin = self._locked("datasets.lock", "dataset").get(name, {})
        repository, revision, place = _text(pin, "repository"), _text(pin, "revision"), quote(path)
        if pin.get("source") == "bucket":
            generation = next((_text(file, "generation") for file in _tables(pin, "files", path)), None)
            bucket = _text(pin, "bucket")
            return f"gs://{bucket}/{place}#{generation}" if bucket and generation else None
        if not repository or not revision:
            return None
        known = {
            "hub": f"hf://datasets/{repository}@{revision}/{place}",
            "github": f"git+https://github.com/{repository}@{revision}#{place}",
            "modelscope": f"git+https://www.modelscope.cn/datasets/{repository}.git@{revision}#{place}",
        }
        return known.get(str(pin.get("source")))

    def _locked(self, lock: str, kind: str) -> dict[str, Mapping[str, Any]]:
        """The tables of one kind in the run's copy of a lock, by name; empty where it has none."""
        paths = [name.removeprefix("file:") for name in self._inputs if name.startswith("file:")]
        found = {}
        for path in paths:
            if path.rpartition("/")[2] == lock:
                found = {str(table.get("name")): table for table in self._tables(PINS + path, kind)}
        return found

    def _tables(self, path: str, kind: str) -> list[Mapping[str, Any]]:
        data = self._run.bytes(path)
        try:
            tables = tomllib.loads((data or b"").decode("utf-8")).get(kind, [])
        except ValueError:
            return []
        return [table for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []

    def evaluators(self) -> dict[str, str]:
        """The version of each evaluator whose description was frozen."""
        found = {}
        for name in self._inputs:
            path = name.removeprefix("file:")
            if not path.endswith("/evaluator.toml"):
                continue
            data = self._run.bytes(PINS + path)
            try:
                described = tomllib.loads((data or b"").decode("utf-8"))
            except ValueError:
                continue
            if (called := _text(described, "name")) and (version := _text(described, "version")):
                found[called] = version
        return dict(sorted(found.items()))


def _text(table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    return value if isinstance(value, str) and value else None


def _tables(pin: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
    """The tables of a file in a dataset's pin."""
    found = pin.get(key)
    files = found if isinstance(found, list) else []
    return [file for file in files if isinstance(file, dict) and file.get("path") == path]
