r"""Files that survive a crash: atomic writes, append-only JSONL, torn tails repaired and said so.

State is written to a temporary file, flushed to disk and renamed, so that a reader sees the old bytes or
the new ones. Logs are JSONL split on the byte `\n` alone (a U+0085 inside a record is no line end), and a
torn last line is cut off before anything is appended to it.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay.errors import RunError

TAIL_BYTES = 1 << 20
PARTIAL = ".partial"
"""How the name of a file ends that is still written, and not yet in its place."""


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace the file's content in one step.

    Args:
        path: The file; its directory must exist.
        data: The bytes.
        mode: Permission bits of the new file.

    Raises:
        RunError: the disk is full; the old content stands.
        OSError: the directory cannot be written.
    """
    with replacing(path, mode) as write:
        write(data)


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[Callable[[bytes], object]]:
    """Replace the file's content in one step with what is written meanwhile; an exception leaves the old one.

    Args:
        path: The file; its directory must exist.
        mode: Permission bits of the new file.

    Yields:
        What appends bytes to the new content.

    Raises:
        RunError: the disk is full; the old content stands.
        OSError: the directory cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_full(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def partial_files(folder: Path, spared: Collection[Path] = ()) -> list[Path]:
    """What `replacing` left below a folder when its process was killed, in order.

    Args:
        folder: Where nobody writes now.
        spared: Folders in it that belong to others.
    """
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) not in spared]
        found += [path for path in (Path(place, name) for name in names) if is_partial(path)]
    return sorted(found)


def is_partial(path: Path) -> bool:
    """Whether a file is named as one that `replacing` still writes."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def sync_directory(path: Path) -> None:
    """Make a rename inside the directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_full(path: Path, error: OSError) -> Exception:
    """The error as a person should read it: a full disk becomes a `RunError`, any other stays."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"the disk is full: {path} could not be written",
            f"{os.strerror(error.errno)}; what had been written before is intact",
            f"free some space on the file system of {path.parent} (see: df -h {path.parent})",
        )
    return error


def json_text(value: object) -> str:
    """Readable JSON: two spaces, keys in the order given, a final newline; ValueError for NaN."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json_atomic(path: Path, value: object, mode: int = 0o644) -> None:
    """Write the value as readable JSON, atomically (see `write_atomic`)."""
    write_atomic(path, json_text(value).encode("utf-8"), mode)


def read_json(path: Path) -> Any:
    """The JSON value in a file; OSError or ValueError when there is none."""
    return json.loads(path.read_bytes())


OLDER = "check out the commit that its provenance/worktree.json names, and read it with that"


def other_form(value: Any, expected: str) -> str | None:
    """The `schema_version` of a document of the same kind and another form; None for any other document."""
    found = value.get("schema_version") if isinstance(value, dict) else None
    family = expected.rpartition("/")[0]
    ours = isinstance(found, str) and found.rpartition("/")[0] == family
    return str(found) if ours and found != expected else None


def read_jsonl(path: Path) -> Iterator[Any]:
    """The values of a JSONL file, one a line, a torn last line left out.

    Raises:
        ValueError: a whole line is not JSON.
    """
    for line in path.read_bytes().split(b"\n")[:-1]:
        if line:
            yield json.loads(line)


def repair_tail(path: Path) -> int:
    """Cut a torn last line off a JSONL file and return how many bytes were cut (0 when it was whole)."""
    try:
        with path.open("r+b") as file:
            size = whole = file.seek(0, os.SEEK_END)
            # From the end: such a file may be larger than the memory.
            while whole > 0:
                start = max(0, whole - TAIL_BYTES)
                file.seek(start)
                line_end = file.read(whole - start).rfind(b"\n") + 1
                whole = start + line_end
                if line_end:
                    break
            if whole == size:
                return 0
            file.truncate(whole)
            os.fsync(file.fileno())
            return size - whole
    except FileNotFoundError:
        return 0


class JsonlWriter:
    """An append-only JSONL file: each record is one write of one whole line.

    Opening repairs a torn tail first; `repaired_bytes` says how much was cut.
    """

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        self.path = path
        self.repaired_bytes = repair_tail(path)
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)

    def append(self, value: object, sync: bool = False) -> None:
        """Append one record; RunError when the disk is full (a torn line is cut off again).

        Args:
            value: A JSON value without NaN.
            sync: Flush the file to the disk as well.
        """
        line = (
            json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
            + b"\n"
        )
        before = os.fstat(self._handle).st_size
        try:
            written = os.write(self._handle, line)
            if written != len(line):
                os.ftruncate(self._handle, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(self._handle)
        except OSError as error:
            raise disk_full(self.path, error) from error

    def close(self) -> None:
        """Flush to the disk and close; a second call does nothing."""
        if self._handle >= 0:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
