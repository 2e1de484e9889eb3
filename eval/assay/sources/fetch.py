"""Fetch a source by its commit into a checkout that is found only when it is whole.

It is made aside and renamed into place after every byte was verified, so a fetch that was cut off leaves
nothing that could be taken for a source. What is already there is verified and never touched.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from assay.console import step
from assay.errors import AssayError, PrerequisiteError, RunError, VerificationError
from assay.paths import owned_directory, relative
from assay.sources import git
from assay.sources.checkout import ONLY, Checkout, examine_tag, verify, verify_at
from assay.sources.lock import Source, load_lock
from assay.sources.mirror import Mirror, Origin

# No conversion of line ends, keywords or encodings, and no filter: the files are the commit's bytes.
ATTRIBUTES = "* -text -ident -filter -working-tree-encoding\n"
CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
[remote "origin"]
\turl = {repository}
"""


class Runner(Protocol):
    """Runs a child to its end (`assay.setup.tool.Runner`)."""

    def run(
        self, command: Sequence[str | Path], environment: Mapping[str, str], doing: str, again: str
    ) -> str:
        """Run the command and return its output; AssayError when it fails."""


def fetch_all(names: Iterable[str], mirror: Mirror | None, runner: Runner) -> list[Checkout]:
    """Every named source, verified; those that are not there are fetched first.

    Args:
        names: Sources of the lock.
        mirror: Where to fetch from instead of the sources' own repositories.
        runner: Runs Git's long calls.

    Raises:
        PrerequisiteError: sources cannot be had; all of them are named, and what could be had was kept.
        VerificationError: one is not as pinned.
    """
    chosen = list(dict.fromkeys(names))
    if not chosen:
        return []
    lock = load_lock()
    missing: list[AssayError] = []
    found = []
    for source in [lock.source(name) for name in chosen]:
        if not source.path.is_symlink() and not source.path.exists():
            try:
                fetch(source, mirror, runner)
            except PrerequisiteError as error:
                missing.append(error)
                continue
        with step(f"source {source.name}: every file against {source.revision[:12]}"):
            found.append(verify(source.name))
    if len(missing) == 1:
        raise missing[0]
    if missing:
        raise PrerequisiteError(
            f"{len(missing)} sources cannot be had",
            "\n        ".join(f"{error.what}: {error.why}" for error in missing),
            missing[0].next,
        )
    return found


def fetch(source: Source, mirror: Mirror | None, runner: Runner) -> None:
    """Fetch and check out a source that is not there.

    Raises:
        PrerequisiteError: nobody gives it.
        VerificationError: what is given is not what is pinned.
        RunError: the disk is full.
    """
    origins = mirror.origins(source) if mirror else [Origin(source.repository)]
    if mirror and not origins:
        raise absent(source, mirror, "it holds no repository of that path or name")
    aside = owned_directory(source.path.parent) / f".{source.name}.partial"
    refusals = []
    for origin in origins:
        clear(aside)
        try:
            with step(f"source {source.name} at {source.revision[:12]} from {origin.address}"):
                make(source, origin, aside, runner)
        except PrerequisiteError as error:
            refusals.append(f"{origin.address}: {git.last_words(error.why)}")
            continue
        finally:
            if not (aside / ".git").is_dir():
                clear(aside)
        aside.rename(source.path)
        return
    clear(aside)
    raise absent(source, mirror, "; ".join(refusals))


def absent(source: Source, mirror: Mirror | None, why: str) -> PrerequisiteError:
    """The error for a source that cannot be fetched."""
    place = f"the mirror {mirror.place}" if mirror else source.repository
    other = "another mirror" if mirror else "a mirror of it"
    return PrerequisiteError(
        f"{place} does not give the source {source.name} ({source.repository} at {source.revision})",
        why,
        f"reach it, or name {other}: {ONLY} --mirror DIR|URL",
    )


def make(source: Source, origin: Origin, aside: Path, runner: Runner) -> None:
    """Make the verified checkout aside.

    Raises:
        PrerequisiteError: the origin does not give the commit, or the tag.
        VerificationError: the tag names another commit, or a file is not the commit's.
    """
    initialise(source, aside)
    get(source, origin, aside, runner)
    if source.tag is not None:
        try:
            examine_tag(source, aside)
        except VerificationError as error:
            raise VerificationError(
                f"{origin.address} does not give the pinned tag {source.tag} of the source {source.name}",
                error.what.partition(") ")[2] + f"; {error.why.partition(';')[0]}",
                f"fetch from another place: {ONLY} --mirror DIR|URL",
            ) from error
    try:
        git.ask(aside, "checkout", "--quiet", "--detach", "--no-recurse-submodules", source.revision)
    except subprocess.CalledProcessError as error:
        raise RunError(
            f"the source {source.name} could not be checked out", git.last_words(error.stderr), ONLY
        ) from error
    verify_at(source, aside)


def initialise(source: Source, aside: Path) -> None:
    """An empty repository without hooks, whose own configuration is exactly ours."""
    owned_directory(aside)
    try:
        git.ask(aside, "init", "--quiet", "--template=", "--object-format=sha1")
    except subprocess.CalledProcessError as error:
        raise RunError(f"{relative(aside)} cannot be made", git.last_words(error.stderr), ONLY) from error
    (aside / ".git/config").write_text(CONFIG.format(repository=source.repository), "utf-8")
    information = aside / ".git/info"
    information.mkdir(exist_ok=True)
    (information / "attributes").write_text(ATTRIBUTES, "utf-8")


def get(source: Source, origin: Origin, aside: Path, runner: Runner) -> None:
    """Fetch the commit, and the tag with the history between them.

    An origin that gives no commit by its name (a static file server, an old Git) is asked for its branches.
    """
    tag = [f"+refs/tags/{source.tag}:refs/tags/{source.tag}"] if source.tag else []
    # Without a tag no history is needed; a version that is computed from one needs all of it.
    depth = [] if source.tag else ["--depth=1"]
    environment = git.environment(origin.directory)
    doing = f"the source {source.name} could not be fetched"

    def run(*arguments: str) -> None:
        common = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        runner.run(git.words(aside, *common, *arguments), environment, doing, ONLY)

    try:
        run(*depth, origin.address, source.revision, *tag)
    except PrerequisiteError as refusal:
        if "no such remote ref" in refusal.why.lower() or "couldn't find remote ref" in refusal.why:
            raise
        run(origin.address, "+refs/heads/*:refs/remotes/origin/*", *tag)
        try:
            git.ask(aside, "cat-file", "-e", f"{source.revision}^{{commit}}")
        except subprocess.CalledProcessError:
            raise refusal from None


def clear(aside: Path) -> None:
    """Remove what an earlier fetch left aside; a link is removed, never followed."""
    if aside.is_symlink() or aside.is_file():
        aside.unlink()
    elif aside.exists():
        shutil.rmtree(aside)
