"""A checkout's files, hashed as Git hashes them, so that a commit proves them without trusting its store.

The names of blobs and trees are computed from what lies on the disk, up to the root. If that name is the one
in the commit, and the commit's bytes have the pinned name, every file is the pinned one and there is no
other.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.digest import combined_digest

FILE, PROGRAM, LINK, FOLDER, SUBMODULE = "100644", "100755", "120000", "40000", "160000"
OWN = ".git"


@dataclass(frozen=True)
class Leaf:
    """A file or link: Git's mode, Git's name of its content, and the content's SHA-256."""

    mode: str
    blob: str
    sha256: str


def object_name(kind: str, content: bytes) -> str:
    """Git's name (SHA-1) of an object."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def leaves(root: Path) -> dict[str, Leaf]:
    """Every file and link below the root but Git's own folder there, by relative path.

    Special files appear with the mode "special": no commit has one.
    """
    return {path: leaf(root / path) for path in sorted(paths(root, root))}


def paths(folder: Path, root: Path) -> Iterator[str]:
    """The relative path of everything that is no directory."""
    for entry in os.scandir(folder):
        if folder == root and entry.name == OWN:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from paths(Path(entry.path), root)
        else:
            yield Path(entry.path).relative_to(root).as_posix()


def leaf(path: Path) -> Leaf:
    """One file or link as it is on the disk."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        content, mode = os.fsencode(path.readlink()), LINK
    elif stat.S_ISREG(found.st_mode):
        content, mode = path.read_bytes(), PROGRAM if found.st_mode & stat.S_IXUSR else FILE
    else:
        content, mode = b"", "special"
    return Leaf(mode, object_name("blob", content), hashlib.sha256(content).hexdigest())


def root_name(found: Mapping[str, Leaf]) -> str:
    """Git's name of the tree that holds exactly these files."""
    folders: dict[str, dict[str, Leaf]] = {}
    entries: list[tuple[bytes, bytes]] = []
    for path, item in found.items():
        name, _, rest = path.partition("/")
        if rest:
            folders.setdefault(name, {})[rest] = item
        else:
            entries.append((os.fsencode(name), entry(item.mode, name, item.blob)))
    for name, inside in folders.items():
        # Git sorts a folder as if its name ended in a slash.
        entries.append((os.fsencode(name) + b"/", entry(FOLDER, name, root_name(inside))))
    return object_name("tree", b"".join(line for _, line in sorted(entries)))


def entry(mode: str, name: str, hexadecimal: str) -> bytes:
    """One line of a tree."""
    return mode.encode() + b" " + os.fsencode(name) + b"\0" + bytes.fromhex(hexadecimal)


def digest(found: Mapping[str, Leaf]) -> str:
    """One SHA-256 over paths, modes and contents."""
    return combined_digest({path: f"{item.mode} {item.sha256}" for path, item in found.items()})
