"""First pins: what `datasets.lock` lists as unpinned is fetched once, hashed, and written into the lock.

It is for a review and a commit: from then on the digests decide, and nothing that a host says. What is
fetched for it is in the cache as if it had been pinned before.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import PurePosixPath

from pydantic import ValidationError

from assay import pinset
from assay.console import say
from assay.data import store
from assay.data.fetch import bring
from assay.data.hosts import HOSTS
from assay.data.pins import (
    NAME,
    UNPINNED,
    PinnedFile,
    RepositoryDataset,
    Unpinned,
    command,
    datasets,
    unpinned,
)
from assay.data.repository import Host, Listed
from assay.data.verify import Snapshot
from assay.errors import ConfigurationError, PrerequisiteError
from assay.files import write_atomic
from assay.names import nearest
from assay.paths import relative

# Settings of a repository, and what a library that reads a folder would remove from it.
LEFT_OUT = frozenset({".gitattributes", ".gitignore", "dataset_infos.json"})


def write_pins(names: Sequence[str], yes: bool = False) -> list[Snapshot]:
    """Pin what is listed as unpinned, as it is now.

    Args:
        names: Names of `[[unpinned]]` tables.
        yes: Do not ask before a large download.

    Returns:
        What was pinned, verified, in the cache.

    Raises:
        ConfigurationError: a name is unknown, or pinned already.
        PrerequisiteError: a publisher cannot be reached or refuses, there is no room, or nobody agreed.
        VerificationError: something here, or what was offered, is not what was told.
    """
    chosen = _choose(names)
    again = command(" ".join([*names, "--write-pins", *(["--yes"] if yes else [])]))
    owner = store.own()
    found: list[Snapshot] = []
    with owner.opened():
        for wanted in chosen:
            with HOSTS[wanted.source]() as host:
                dataset = look_up(host, wanted, again)
            found += bring(owner, [dataset], None, again, yes)
            path = pinset.current().file(NAME)
            write_atomic(path, replaced(path.read_text("utf-8"), dataset).encode("utf-8"))
            say(f"assay: {wanted.name}: pinned at {dataset.revision} in {relative(path)}, for a review")
    return found


def _choose(names: Sequence[str]) -> list[Unpinned]:
    waiting, known = unpinned(), datasets()
    for name in names:
        if name in known:
            raise ConfigurationError(
                f"task data {name} are pinned already",
                "pins are never written over",
                f"fetch them: {command(name)}",
            )
        if name not in waiting:
            raise ConfigurationError(
                f'nothing that waits for its pins is named "{name}"',
                nearest(name, waiting),
                command("NAME --write-pins"),
            )
    return [waiting[name] for name in dict.fromkeys(names)]


def look_up(host: Host, wanted: Unpinned, again: str) -> RepositoryDataset:
    """What the publisher has now, by commit, size and digest.

    Raises:
        PrerequisiteError: it cannot be reached, lacks a file that is wanted, or tells what cannot be pinned.
    """
    revision = host.commit(wanted.repository, wanted.branch, again)
    told = host.files(wanted.repository, revision, again)
    kept = (
        [Listed(path) for path in wanted.files]
        if told is None
        else [file for file in told if is_wanted(file, wanted)]
    )
    lacking = set(wanted.files) - {file.path for file in kept}
    if lacking or not kept:
        said = ", ".join(sorted(lacking)) or "no file at all"
        raise PrerequisiteError(f"{wanted.repository} lacks what is wanted of it", said, f"edit {NAME}")
    try:
        files = tuple(
            pinned(host, wanted, revision, file, again) for file in sorted(kept, key=lambda file: file.path)
        )
        return RepositoryDataset(
            name=wanted.name,
            source=wanted.source,
            repository=wanted.repository,
            revision=revision,
            size_bytes=sum(file.size_bytes for file in files),
            files=files,
        )
    except ValidationError as error:
        raise PrerequisiteError(
            f"what {wanted.repository} lists cannot be pinned", str(error).splitlines()[-1], again
        ) from error


def is_wanted(file: Listed, wanted: Unpinned) -> bool:
    """Whether a file that is listed is to be pinned."""
    if wanted.files:
        return file.path in wanted.files
    return file.size_bytes != 0 and PurePosixPath(file.path).name not in LEFT_OUT


def pinned(host: Host, wanted: Unpinned, revision: str, file: Listed, again: str) -> PinnedFile:
    """The pin of a file: what a download is held against, as it is told, else by the bytes."""
    if file.size_bytes is None or file.sha256 is None:
        file = host.seen(wanted.repository, revision, file.path, again)
    return PinnedFile(path=file.path, size_bytes=file.size_bytes or 0, sha256=file.sha256)


def replaced(text: str, dataset: RepositoryDataset) -> str:
    """The lock's text with the dataset's table in the place of its unpinned one; all else stays as it is."""
    parts = re.split(r"(?m)^(?=\[\[)", text)
    for at, part in enumerate(parts):
        if part.startswith(f"[[{UNPINNED}]]") and tomllib.loads(part)[UNPINNED][0]["name"] == dataset.name:
            parts[at] = table(dataset) + ("\n" if at + 1 < len(parts) else "")
            return "".join(parts)
    raise PrerequisiteError(f"{NAME} lists {dataset.name} no longer", "it was changed meanwhile", "try again")


def table(dataset: RepositoryDataset) -> str:
    """A dataset's table as the lock has it."""
    rows = []
    for file in dataset.files:
        size = f"size_bytes = {file.size_bytes}"
        rows.append(f'    {{ path = {json.dumps(file.path)}, {size}, sha256 = "{file.sha256}" }},\n')
    return (
        f'[[dataset]]\nname = "{dataset.name}"\nsource = "{dataset.source}"\n'
        f'repository = "{dataset.repository}"\nrevision = "{dataset.revision}"\n'
        f"size_bytes = {dataset.size_bytes}\nfiles = [\n{''.join(rows)}]\n"
    )
