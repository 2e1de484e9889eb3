"""Fetch what is missing: how much it is is said, room for it is checked, and much is agreed to, first.

What is here and right is left alone; what is here and wrong is an error, never replaced. An interrupted
download leaves what has come, and the same command goes on with it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from assay.console import say
from assay.data import library, store
from assay.data.bucket import Bucket
from assay.data.hosts import HOSTS
from assay.data.meter import meter
from assay.data.mirror import Mirror
from assay.data.partial import Partial
from assay.data.pins import (
    GIGA,
    MEGA,
    BucketDataset,
    Dataset,
    PinnedFile,
    RepositoryDataset,
    amount,
    choose,
    command,
)
from assay.data.store import Store
from assay.data.verify import Snapshot, hash_present, snapshot
from assay.errors import CancelledError, PrerequisiteError
from assay.paths import relative

# From this size on a download is agreed to first: by the person at the terminal, or with --yes.
ASK_BYTES = GIGA
# Room that is left beside what is fetched.
MARGIN_BYTES = 256 * MEGA

Get = Callable[[Dataset, PinnedFile, Partial], None]


def fetch(names: Sequence[str], mirror: Path | None = None, yes: bool = False) -> list[Snapshot]:
    """The datasets of those names, verified, what was missing of them fetched.

    Args:
        names: Names of datasets.lock, or `all`.
        mirror: A directory to take files from instead of the network (see `assay.data.mirror`).
        yes: Do not ask before a large download.

    Raises:
        ConfigurationError: a name is unknown, or the cache, the mirror or an endpoint cannot be used.
        PrerequisiteError: a publisher cannot be reached or refuses, there is no room, or nobody agreed.
        VerificationError: something here, or what was offered, is not what is pinned.
        CancelledError: the user said no, or interrupted it.
    """
    wanted = choose(names)
    options = [*(["--mirror", shlex.quote(str(mirror))] if mirror else []), *(["--yes"] if yes else [])]
    again = command(" ".join([*names, *options]))
    copies = Mirror(mirror) if mirror else None
    owner = store.own()
    with owner.opened():
        return bring(owner, wanted, copies, again, yes)


def bring(
    owner: Store, wanted: Sequence[Dataset], copies: Mirror | None, again: str, yes: bool
) -> list[Snapshot]:
    """The datasets' snapshots, what was missing of them fetched into the cache that is held (see `fetch`)."""
    absent = {dataset.name: store.missing(owner, dataset) for dataset in wanted}
    digests = {dataset.name: present(owner, dataset, absent[dataset.name]) for dataset in wanted}
    lacking = [file for files in absent.values() for file in files]
    if lacking:
        require_agreed(lacking, owner, again, yes)
    try:
        with contextlib.ExitStack() as stack:
            for dataset in wanted:
                if absent[dataset.name]:
                    get = copied(copies) if copies else downloaded(stack, dataset, owner, again)
                    for file in absent[dataset.name]:
                        digests[dataset.name][file.path] = obtain(owner, dataset, file, get)
                owner.bind(dataset)
    except KeyboardInterrupt:
        raise CancelledError("cancelled; what has come is kept", "the same goes on with it", again) from None
    return [snapshot(owner, dataset, digests[dataset.name]) for dataset in wanted]


def present(owner: Store, dataset: Dataset, absent: Iterable[PinnedFile]) -> dict[str, str]:
    """SHA-256 by path of the files that are here; VerificationError when one is not what is pinned."""
    missing = {file.path for file in absent}
    here = tuple(file for file in dataset.files if file.path not in missing)
    return hash_present(owner, dataset, here, watched=True)


def require_agreed(lacking: Sequence[PinnedFile], owner: Store, again: str, yes: bool) -> None:
    """Say how much is missing, and go on only if there is room for it and it is little or agreed to."""
    grown = sum(size_of(owner.partial(file)) for file in lacking)
    needed = max(0, sum(file.size_bytes for file in lacking) - grown)
    free = shutil.disk_usage(owner.directory).free
    kept = f", {amount(grown)} more are here already" if grown else ""
    say(f"assay: {amount(needed)} to fetch into {relative(owner.directory)}{kept}; {amount(free)} free there")
    if free < needed + MARGIN_BYTES:
        raise PrerequisiteError(
            f"there is no room for {amount(needed)} at {relative(owner.directory)}",
            f"{amount(free)} are free, and {amount(MARGIN_BYTES)} are to stay so",
            f"free some space (see: df -h {owner.directory}), then {again}",
        )
    if yes or needed < ASK_BYTES:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise PrerequisiteError(
            f"{amount(needed)} are not fetched without being agreed to",
            "there is no terminal to ask at",
            f"{again} --yes",
        )
    sys.stderr.write(f"assay: fetch {amount(needed)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CancelledError("nothing was fetched", "", again)


def size_of(path: Path) -> int:
    """The file's size; 0 when it is not there."""
    return path.lstat().st_size if os.path.lexists(path) else 0


def copied(copies: Mirror) -> Get:
    """Take files from a directory."""
    return copies.get


def downloaded(stack: contextlib.ExitStack, dataset: Dataset, owner: Store, again: str) -> Get:
    """Take files from where the dataset is published; what is opened for it is closed with the stack."""
    if isinstance(dataset, BucketDataset):
        bucket = stack.enter_context(Bucket())
        objects = {item.path: item for item in dataset.files}
        return lambda _, file, into: bucket.get(dataset, objects[file.path], into, again)
    if isinstance(dataset, RepositoryDataset):
        host = stack.enter_context(HOSTS[dataset.source]())
        return lambda _, file, into: host.get(dataset, file, into, again)
    library.prepare(owner.directory / "hub-library")
    # Only now: the hub's library reads its environment while it is imported.
    from assay.data.hub import Hub

    hub = stack.enter_context(Hub())
    return lambda _, file, into: hub.get(dataset, file, into, again)


def obtain(owner: Store, dataset: Dataset, file: PinnedFile, get: Get) -> str:
    """Fetch one file, check it and give it its name in the cache; returns its SHA-256."""
    label = f"{dataset.name}/{file.path}"
    begun = min(size_of(owner.partial(file)), file.size_bytes)
    with (
        meter(label, file.size_bytes, begun) as counting,
        Partial(owner.partial(file), file, counting.advance) as into,
    ):
        get(dataset, file, into)
        digests = into.place(owner.path(dataset.folder / file.path))
    say(f"assay: {label}: {amount(file.size_bytes)}, {file.algorithm} as pinned")
    return digests.sha256
