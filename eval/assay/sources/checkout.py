"""Is a source checked out as pinned? Every byte is looked at, and nothing is ever reset or repaired.

A checkout that is not as pinned may hold somebody's work, so each refusal names what differs and the command
that moves it out of the way.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.errors import PrerequisiteError, VerificationError
from assay.paths import ROOT, owned_directory, relative
from assay.sources import git, tree
from assay.sources.lock import Source, load_lock
from assay.sources.tree import LINK, SUBMODULE, Leaf

SHOWN = 8
ONLY = "eval/scripts/setup --sources-only"
# What a clone or a set-up writes into a repository's own configuration; anything else could start a program.
HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"|remote\.origin\.(url|fetch|tagopt)"
    r"|branch\.[^\n]+\.(remote|merge)"
    r"|advice\.[a-z]+"
)
# Files in .git that would make Git read other objects, or other history, than the repository's own.
FOREIGN = ("commondir", "config.worktree", "info/grafts", "objects/info/alternates", "modules")


@dataclass(frozen=True)
class Checkout:
    """A verified source.

    Attributes:
        name: The source.
        path: Where it is.
        revision: The commit, which is the pinned one.
        digest: SHA-256 over every path, mode and content of the working tree.
        files: How many there are.
    """

    name: str
    path: Path
    revision: str
    digest: str
    files: int


def verify(name: str) -> Checkout:
    """The checkout of a source, after every file of it was found to be the pinned commit's.

    Raises:
        ConfigurationError: the lock has no such source, or a link stands where a directory belongs.
        PrerequisiteError: it is not there.
        VerificationError: it is another revision, comes from elsewhere, or differs by a file.
    """
    source = load_lock().source(name)
    path = source.path
    if not path.is_symlink() and not path.exists():
        raise PrerequisiteError(
            f"the source {name} is not here",
            f"it belongs at {relative(path)}",
            f"{ONLY} [--mirror DIR|URL]",
        )
    return verify_at(source, owned_directory(path))


def verify_at(source: Source, path: Path) -> Checkout:
    """`verify` for a checkout at another place, e.g. one that is being made."""
    examine_store(source, path)
    try:
        head = git.ask(path, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        if head != source.revision:
            raise refused(source, f"is at {head}", f"pinned is {source.revision}")
        examine_tag(source, path)
        commit = git.ask(path, "cat-file", "commit", source.revision)
        pinned = git.ask(path, "ls-tree", "-r", "-z", "--full-tree", source.revision)
    except subprocess.CalledProcessError as error:
        raise refused(source, "is no usable Git checkout", git.last_words(error.stderr)) from error
    if tree.object_name("commit", commit) != source.revision:
        raise refused(source, "has a damaged store", f"its object {source.revision} is another commit")
    try:
        found = tree.leaves(path)
        examine_files(source, commit, entries(pinned), found)
    except RecursionError as error:
        raise refused(source, "is not clean", "it holds folders too deep in each other to be read") from error
    examine_links(source, path, found)
    return Checkout(source.name, path, source.revision, tree.digest(found), len(found))


def refused(source: Source, problem: str, why: str) -> VerificationError:
    """The error for a checkout that is not as pinned: nothing is changed, and this is how to go on."""
    place = relative(source.path)
    return VerificationError(
        f"the source {source.name} ({place}) {problem}",
        f"{why}; it is left as it is, since it may hold your work",
        f"mv {place} {place}.saved && {ONLY}",
    )


def examine_store(source: Source, path: Path) -> None:
    """Refuse a repository that is not whole in itself, or whose configuration could start a program."""
    store = path / tree.OWN
    for place in (store, store / "objects", store / "refs"):
        if place.is_symlink() or not place.is_dir():
            raise refused(source, "is no Git checkout of its own", f"{relative(place)} is no directory")
    for name in ("HEAD", "config"):
        if not stat.S_ISREG(mode_of(store / name)):
            raise refused(source, "is no Git checkout of its own", f".git/{name} is no regular file")
    for name in FOREIGN:
        if mode_of(store / name):
            raise refused(source, "is not whole in itself", f".git/{name} leads elsewhere")
    settings = read_settings(source, store / "config")
    odd = sorted(key for key in settings if not HARMLESS.fullmatch(key))
    if odd:
        raise refused(source, "has settings of its own", f".git/config sets {', '.join(odd)}")
    for origin in settings.get("remote.origin.url", ["nothing"]):
        if plain(origin) != plain(source.repository):
            raise refused(source, f"comes from {origin}", f"pinned is {source.repository}")


def mode_of(path: Path) -> int:
    """A file's mode without following a link; 0 when there is none."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def read_settings(source: Source, path: Path) -> Mapping[str, list[str]]:
    """The keys of a repository's own configuration, each with every value that it is given.

    Git reads the file without acting on it.
    """
    try:
        listed = subprocess.run(
            ["git", "config", "--file", str(path), "--no-includes", "--null", "--list"],
            env=git.environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        ).stdout
    except FileNotFoundError as error:
        raise PrerequisiteError(
            "there is no Git", str(error), "install Git (Debian: apt-get install git)"
        ) from error
    except subprocess.CalledProcessError as error:
        raise refused(source, "has no usable configuration", git.last_words(error.stderr)) from error
    found: dict[str, list[str]] = {}
    for item in listed.decode("utf-8", "replace").split("\0"):
        key, _, value = item.partition("\n")
        if key:
            found.setdefault(key, []).append(value)
    return found


def plain(address: str) -> str:
    """An address without the ending that does not matter."""
    return address.rstrip("/").removesuffix(".git")


def examine_tag(source: Source, path: Path) -> None:
    """Refuse a checkout whose tag is missing or names another commit: versions are computed from it."""
    if source.tag is None:
        return
    try:
        name = f"refs/tags/{source.tag}^{{commit}}"
        found = git.ask(path, "rev-parse", "--verify", "--quiet", name).decode().strip()
    except subprocess.CalledProcessError:
        raise refused(source, f"has no tag {source.tag}", f"pinned is {source.tag_revision}") from None
    if found != source.tag_revision:
        raise refused(source, f"has the tag {source.tag} at {found}", f"pinned is {source.tag_revision}")


def entries(listed: bytes) -> dict[str, tuple[str, str]]:
    """Mode and name of every entry of a listed tree, by path."""
    found = {}
    for line in listed.split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, _, name = head.decode("ascii").split(" ")
            found[os.fsdecode(path)] = (mode, name)
    return found


def examine_files(
    source: Source, commit: bytes, pinned: Mapping[str, tuple[str, str]], found: Mapping[str, Leaf]
) -> None:
    """Refuse a working tree that is not the commit's, naming what differs."""
    modules = sorted(path for path, (mode, _) in pinned.items() if mode == SUBMODULE)
    if modules:
        raise refused(source, f"has the submodule {modules[0]}", "what it would hold is not pinned")
    if f"tree {tree.root_name(found)}\n".encode() == commit.partition(b"\n")[0] + b"\n":
        return
    now = {path: (item.mode, item.blob) for path, item in found.items()}
    missing = sorted(pinned.keys() - now.keys())
    extra = sorted(now.keys() - pinned.keys())
    edited = sorted(path for path in pinned.keys() & now.keys() if pinned[path] != now[path])
    named = [f"{path} is missing" for path in missing]
    named += [f"{path} is edited" for path in edited]
    named += [f"{path} is not of the commit" for path in extra]
    shown = named[:SHOWN] + ([f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else [])
    raise refused(source, "is not clean", "; ".join(shown) or "its store does not hold the commit's tree")


def examine_links(source: Source, path: Path, found: Mapping[str, Leaf]) -> None:
    """Refuse a link that leads out of the checkout: what it gives is not pinned."""
    root = path.resolve()
    for name, item in found.items():
        if item.mode == LINK and not (path / name).resolve().is_relative_to(root):
            raise refused(source, f"holds a link that leads out of it: {name}", "what it gives is not pinned")
