"""Task data that are used are verified first: every file by size and digest, and nothing else beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.data import pins, store
from assay.data.hashing import Digests, hash_all
from assay.data.meter import meter
from assay.data.pins import Dataset, PinnedFile, command
from assay.data.store import Store, remove_command
from assay.digest import value_digest
from assay.errors import PrerequisiteError, VerificationError
from assay.paths import relative


@dataclass(frozen=True)
class Place:
    """Where a dataset lies that is here whole; whether its bytes are the pinned ones is not said.

    Attributes:
        path: The directory that holds its files.
        hub: The cache that libraries of the hub take as HF_HUB_CACHE; None for a bucket's dataset.
        revision: The pinned commit, or the objects' generations.
    """

    path: Path
    hub: Path | None
    revision: str


@dataclass(frozen=True)
class Snapshot:
    """A dataset that is here, as it was when it was last hashed.

    Attributes:
        name: In datasets.lock.
        path: The directory that holds its files.
        hub: The cache that libraries of the hub take as HF_HUB_CACHE; None for a bucket's dataset.
        revision: The pinned commit, or the objects' generations.
        digest: SHA-256 over name, revision and the files' digests.
        size_bytes: The sum over its files.
        files: SHA-256 by the file's path below `path`.
    """

    name: str
    path: Path
    hub: Path | None
    revision: str
    digest: str
    size_bytes: int
    files: Mapping[str, str]


def snapshot(owner: Store, dataset: Dataset, digests: Mapping[str, str]) -> Snapshot:
    """The snapshot of a dataset whose files have these SHA-256."""
    files = {file.path: digests[file.path] for file in dataset.files}
    value = {"name": dataset.name, "revision": dataset.revision, "files": files}
    hub = owner.hub if dataset.source == "hub" else None
    path = owner.path(dataset.folder)
    size = dataset.size_bytes
    return Snapshot(dataset.name, path, hub, dataset.revision, value_digest(value), size, files)


def verify(name: str, watched: bool = False) -> Snapshot:
    """The dataset's snapshot, every byte of it just hashed.

    Args:
        name: A name of datasets.lock.
        watched: Show how far it is.

    Raises:
        ConfigurationError: no dataset of that name is pinned, or the cache is not ours.
        PrerequisiteError: it was not fetched, or not whole.
        VerificationError: a file differs, is a link, or is not in the lock.
    """
    owner, dataset = _whole(name)
    return snapshot(owner, dataset, hash_present(owner, dataset, dataset.files, watched))


def find(name: str) -> Place:
    """Where the dataset lies, whole by names and sizes; nothing is hashed (raises as `verify` does)."""
    owner, dataset = _whole(name)
    hub = owner.hub if dataset.source == "hub" else None
    return Place(owner.path(dataset.folder), hub, dataset.revision)


def _whole(name: str) -> tuple[Store, Dataset]:
    """The cache and a dataset that is in it with every file, and with nothing else."""
    owner, dataset = store.own(), pins.choose([name])[0]
    again = command(dataset.name)
    owner.require_ours(again)
    absent = store.missing(owner, dataset)
    if absent or not store.bound(owner, dataset):
        told = f"{len(absent)} of {len(dataset.files)} files are missing" if absent else "main is not bound"
        raise PrerequisiteError(
            f"task data {dataset.name} are not here", f"{relative(owner.path(dataset.home))}: {told}", again
        )
    return owner, dataset


def hash_present(
    owner: Store, dataset: Dataset, files: tuple[PinnedFile, ...], watched: bool
) -> dict[str, str]:
    """SHA-256 by path of files that are here; VerificationError, naming each that differs."""
    places = [(owner.path(dataset.folder / file.path), file) for file in files]
    total = sum(file.size_bytes for file in files)
    with meter(f"{dataset.name}: hashing", total, watched=watched) as counting:
        found = hash_all(places, counting.advance)
    for (path, file), digests in zip(places, found, strict=True):
        require_pinned(path, file, digests, dataset)
    return {file.path: digests.sha256 for file, digests in zip(files, found, strict=True)}


def require_pinned(path: Path, file: PinnedFile, digests: Digests, dataset: Dataset) -> None:
    """Go on only if the file in the cache is the pinned one; the error says how to remove it by hand."""
    problem = digests.differs(file)
    if problem:
        raise VerificationError(
            f"{relative(path)} is not the pinned file",
            f"{problem}; it is never replaced: somebody may want to know how it came to differ",
            f"{remove_command(path)}, then {command(dataset.name)}",
        )


def digests_here(dataset: Dataset, paths: Collection[str]) -> dict[str, str]:
    """SHA-256 by path of some of a dataset's files, each found to be the pinned one.

    Args:
        dataset: The dataset, e.g. of a run's copy of the lock.
        paths: Of its files.

    Raises:
        ConfigurationError: the cache is not ours.
        PrerequisiteError: one of them was not fetched.
        VerificationError: a file differs, is a link, or is not in the lock.
    """
    owner = store.own()
    owner.require_ours(command(dataset.name))
    absent = [file.path for file in store.missing(owner, dataset) if file.path in paths]
    if absent:
        raise PrerequisiteError(
            f"task data {dataset.name} are not here", ", ".join(absent), command(dataset.name)
        )
    files = tuple(file for file in dataset.files if file.path in paths)
    return hash_present(owner, dataset, files, watched=False)


def frozen(name: str) -> dict[str, str]:
    """The dataset as frozen inputs of a run: SHA-256 by `data:<name>/<path>` (raises as `verify` does)."""
    return {f"data:{name}/{path}": digest for path, digest in verify(name).files.items()}


def frozen_names(name: str) -> list[str]:
    """The names `frozen` gives, without hashing anything; ConfigurationError when it is not pinned."""
    return [f"data:{name}/{file.path}" for file in pins.choose([name])[0].files]
