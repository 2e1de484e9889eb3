"""The cache of task data that belongs to this checkout: its owner mark, its lock, its shape.

It lies at `<pins.data>/`, holds real files only, and is used by nobody else. A directory that stands there
without the mark was made by something else and is refused; so is a link where a directory or file belongs,
and a file that is not in the lock, since the libraries that read a snapshot read whatever they find in it.
Nothing here is ever repaired or removed: the error names the command that removes it by hand.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assay import pinset
from assay.console import say
from assay.data.pins import Dataset, HubDataset, PinnedFile, command
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.files import read_json, write_atomic, write_json_atomic
from assay.paths import owned_directory, owned_lock, relative

MARK = ".assay-data.json"
LOCK = ".lock"
PARTIAL = "partial"


def remove_command(path: Path) -> str:
    """The command that removes a file or folder by hand."""
    flag = "" if not path.is_dir() or path.is_symlink() else "-r "
    return f"rm {flag}{shlex.quote(relative(path))}"


@dataclass(frozen=True)
class Store:
    """One cache: a directory inside the checkout, and the name of the pin set that it serves."""

    directory: Path
    pins: str

    @property
    def hub(self) -> Path:
        """The part that is laid out as the hub's own libraries want their cache."""
        return self.directory / "hub"

    def path(self, place: PurePosixPath) -> Path:
        """Where something of the cache lies."""
        return self.directory / place

    def partial(self, file: PinnedFile) -> Path:
        """Where the file grows while it is fetched, named by its digest so that nothing else continues it."""
        return self.directory / PARTIAL / f"{file.algorithm}-{file.digest}"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the cache, or take the one that is there, and have it for oneself while the block runs.

        Raises:
            ConfigurationError: a link or a file stands in its place, or a directory without our mark.
        """
        owned_directory(self.directory)
        mark = self.directory / MARK
        # What another process may be about to make, in a directory that was empty.
        ours = (LOCK, f".{MARK}.")
        if os.path.lexists(mark) or not all(path.name.startswith(ours) for path in self.directory.iterdir()):
            self.require_ours("")
        with self._turn():
            if not os.path.lexists(mark):
                write_json_atomic(mark, {"owner": "assay data", "pins": self.pins})
            self.require_ours("")
            yield

    def require_ours(self, again: str) -> None:
        """Go on only if the cache is here and carries our mark.

        Args:
            again: The command that fetches what is missing.

        Raises:
            PrerequisiteError: it is not here.
            ConfigurationError: it is not ours.
        """
        if not os.path.lexists(self.directory):
            raise PrerequisiteError(
                "no task data is here", f"{relative(self.directory)} does not exist", again
            )
        owned_directory(self.directory)
        mark = self.directory / MARK
        try:
            ours = stat.S_ISREG(mark.lstat().st_mode) and read_json(mark) == {
                "owner": "assay data",
                "pins": self.pins,
            }
        except (OSError, ValueError):
            ours = False
        if not ours:
            raise ConfigurationError(
                f"{relative(self.directory)} is not Assay's cache of task data",
                f"its {MARK} does not say so for the pins of {self.pins}; what others made is left alone",
                f"move it away: mv {relative(self.directory)} {relative(self.directory)}.saved",
            )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the cache's lock; a second process waits for it and says whose it is.

        The kernel holds it for the open file, so it ends with the process, however that ends.
        """
        handle = owned_lock(self.directory / LOCK)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 64, 0).decode("ascii", "replace").strip() or "unknown"
                say(f"assay: waiting for another download into this cache (process {holder}) ...")
                fcntl.flock(handle, fcntl.LOCK_EX)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
            yield
        finally:
            os.close(handle)

    def bind(self, dataset: Dataset) -> None:
        """Let `main` mean the pinned commit, inside this cache alone; a bucket has no such thing."""
        if isinstance(dataset, HubDataset) and not os.path.lexists(self.path(dataset.reference)):
            path = self.path(dataset.reference)
            owned_directory(path.parent)
            write_atomic(path, dataset.revision.encode("ascii"))


def own() -> Store:
    """The cache of the pin set in force."""
    pins = pinset.current()
    return Store(pins.data, pins.name)


def missing(store: Store, dataset: Dataset) -> list[PinnedFile]:
    """The dataset's files that are not here yet, after its folder was found to hold nothing unpinned.

    Sizes are compared; nothing is hashed.

    Raises:
        VerificationError: there is a link, a file that is not in the lock, one of another size, or `main` is
            bound to another commit.
        ConfigurationError: a link stands where the folder belongs.
    """
    home = store.path(dataset.home)
    if not os.path.lexists(home):
        return list(dataset.files)
    owned_directory(home)
    pinned = {dataset.folder / file.path: file for file in dataset.files}
    allowed = {*pinned, *([dataset.reference] if isinstance(dataset, HubDataset) else [])}
    folders = {parent for place in allowed for parent in place.parents}
    here: set[PurePosixPath] = set()
    for path in _entries(home):
        place = PurePosixPath(path.relative_to(store.directory).as_posix())
        found = path.lstat()
        mode = found.st_mode
        if (
            dataset.source == "bucket"
            and stat.S_ISREG(mode)
            and not found.st_size
            and place.suffix == ".lock"
        ):
            continue  # What a taskset's own file lock leaves beside its data: nothing that could be read.
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise VerificationError(
                f"{relative(path)} is neither a file nor a directory",
                "task data are real files; a link would be read, whatever it leads to",
                remove_command(path),
            )
        if place not in (folders if stat.S_ISDIR(mode) else allowed):
            raise VerificationError(
                f"{relative(path)} is not in datasets.lock",
                "whoever reads the snapshot would read it too, so it may hold nothing else",
                remove_command(path),
            )
        if place in pinned and found.st_size != pinned[place].size_bytes:
            raise VerificationError(
                f"{relative(path)} has {found.st_size} bytes, but datasets.lock says "
                f"{pinned[place].size_bytes}",
                "it is never replaced: somebody may want to know how it came to differ",
                f"{remove_command(path)}, then {command(dataset.name)}",
            )
        here.add(place)
    if isinstance(dataset, HubDataset) and dataset.reference in here:
        _require_bound(store, dataset)
    return [file for place, file in pinned.items() if place not in here]


def bound(store: Store, dataset: Dataset) -> bool:
    """Whether `main` means the pinned commit, where there is such a thing."""
    return not isinstance(dataset, HubDataset) or os.path.lexists(store.path(dataset.reference))


def _require_bound(store: Store, dataset: HubDataset) -> None:
    path = store.path(dataset.reference)
    said = path.read_bytes()
    if said != dataset.revision.encode("ascii"):
        raise VerificationError(
            f"{relative(path)} binds main to {said[:80]!r}",
            f"datasets.lock pins {dataset.revision}, and who asks for no revision would get the other",
            f"{remove_command(path)}, then {command(dataset.name)}",
        )


def _entries(directory: Path) -> Iterator[Path]:
    """Everything below a directory, sorted, each directory before what is in it; links are not followed."""
    for entry in sorted(os.scandir(directory), key=lambda item: item.name):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path))
