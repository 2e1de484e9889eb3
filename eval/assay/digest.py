"""Digests: of files (in parallel, at the disk's speed), of trees, and of values.

Everything Assay pins or records is named by SHA-256 over bytes. Values are hashed over one canonical JSON
form (sorted keys, no spaces, UTF-8, no NaN), so that equal values have equal digests on any machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.errors import VerificationError

CHUNK_BYTES = 1 << 20
SMALL_BYTES = 1 << 16
FILES_A_TASK = 256


def sha256_bytes(data: bytes) -> str:
    """The SHA-256 of the bytes, 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, 64 lower-case hex digits; OSError if it cannot be read."""
    with path.open("rb", buffering=0) as file:
        head = file.read(SMALL_BYTES)
        digest = hashlib.sha256(head)
        # Most files of an environment are small: only a longer one is worth a large buffer.
        if len(head) == SMALL_BYTES:
            buffer = bytearray(CHUNK_BYTES)
            view = memoryview(buffer)
            while count := file.readinto(buffer):
                digest.update(view[:count])
    return digest.hexdigest()


def sha256_files(paths: Iterable[Path], workers: int | None = None) -> dict[Path, str]:
    """The SHA-256 of each file, read by several threads (hashlib releases the interpreter's lock).

    Args:
        paths: Files to read; each once, in any order.
        workers: Threads; as many as there are processors when None.

    Returns:
        Digests by path, in the order given.
    """
    ordered = list(dict.fromkeys(paths))
    threads = workers or os.cpu_count() or 1
    # One task a file would cost more than hashing a small file does.
    size = max(1, min(FILES_A_TASK, len(ordered) // threads))
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    with ThreadPoolExecutor(threads) as pool:
        digests = [value for part in pool.map(_sha256_each, parts) for value in part]
    return dict(zip(ordered, digests, strict=True))


def _sha256_each(paths: list[Path]) -> list[str]:
    return [sha256_file(path) for path in paths]


def canonical_json(value: object) -> bytes:
    """The one JSON form that digests are taken over; ValueError for NaN, infinity or a non-JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def value_digest(value: object) -> str:
    """SHA-256 over the value's canonical JSON."""
    return sha256_bytes(canonical_json(value))


def walk_files(root: Path, ignored: frozenset[str] = frozenset({"__pycache__"})) -> Iterator[Path]:
    """Every regular file below a directory, in sorted order, without following links.

    Args:
        root: The directory.
        ignored: Directory names that are passed over at any depth.

    Raises:
        VerificationError: a link or a special file is found; a tree that is hashed must hold only bytes.
    """
    for entry in sorted(os.scandir(root), key=lambda item: item.name):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if entry.name not in ignored:
                yield from walk_files(Path(entry.path), ignored)
        elif stat.S_ISREG(mode):
            yield Path(entry.path)
        else:
            raise VerificationError(
                f"{entry.path} is neither a file nor a directory",
                "a hashed tree may hold no links",
                "remove it",
            )


def tree_digests(root: Path, ignored: frozenset[str] = frozenset({"__pycache__"})) -> dict[str, str]:
    """SHA-256 of every file below `root`, by its path relative to it (forward slashes), sorted."""
    digests = sha256_files(walk_files(root, ignored))
    return dict(sorted((path.relative_to(root).as_posix(), value) for path, value in digests.items()))


def combined_digest(digests: Mapping[str, str]) -> str:
    """One digest for a set of named digests, independent of their order."""
    return value_digest(dict(digests))
