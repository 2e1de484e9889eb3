"""`datasets.lock`: the task data, each file named by its size and digest and by where its publisher keeps it.

A dataset of the hub, of ModelScope or of GitHub is one commit of a repository and those files of it that are
read. A dataset of a bucket is a set of objects, each at one generation. The lock decides; what a host says
about a file is compared with it and believed in nothing. What nobody has pinned yet is listed as such
(`[[unpinned]]`): it has a name to be refused by, and `assay data NAME --write-pins` to be pinned by.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from assay import pinset
from assay.errors import ConfigurationError, PrerequisiteError
from assay.names import nearest
from assay.paths import relative
from assay.profile import describe, read_toml

NAME = "datasets.lock"
EVERYTHING = "all"
PINNED, UNPINNED = "dataset", "unpinned"
MEGA = 1_000_000
GIGA = 1_000_000_000
Algorithm = Literal["sha256", "git-sha1"]
RepositorySource = Literal["modelscope", "github"]
DATASET_NAME = r"^[a-z0-9][a-z0-9-]{0,63}$"
REPOSITORY = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"
COMMIT = r"^[0-9a-f]{40}$"


class PinnedFile(BaseModel):
    """One file of a dataset.

    Attributes:
        path: Its path in the repository, or the object's name.
        size_bytes: Its size.
        sha256: The digest of its bytes, 64 hex digits; None where only Git's hash is pinned.
        git_sha1: Git's hash of it as a blob, 40 hex digits; None where SHA-256 is pinned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    size_bytes: int = Field(gt=0)
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    git_sha1: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if (self.sha256 is None) == (self.git_sha1 is None):
            raise ValueError(f"{self.path}: give sha256 or git_sha1, one of them")
        parts = PurePosixPath(self.path).parts
        plain = self.path and self.path == "/".join(parts) and self.path.isprintable()
        if not plain or parts[0] == "/" or ".." in parts or "\\" in self.path:
            raise ValueError(f"the path {self.path!r} is not a plain relative one")
        return self

    @property
    def algorithm(self) -> Algorithm:
        """Which digest is pinned."""
        return "sha256" if self.sha256 else "git-sha1"

    @property
    def digest(self) -> str:
        """The pinned digest, hex."""
        return self.sha256 or self.git_sha1 or ""


class PinnedObject(PinnedFile):
    """One object of a bucket.

    Attributes:
        part: What the taskset calls it, e.g. "32k-64k".
        generation: The object's generation, as decimal digits: other bytes are another generation.
    """

    part: str
    generation: str = Field(pattern=r"^[0-9]{1,20}$")


class HubDataset(BaseModel):
    """A commit of a dataset repository.

    Attributes:
        name: What `assay data` calls it.
        source: Where it is published.
        repository: `ORGANISATION/NAME` on the hub.
        revision: The commit, 40 hex digits.
        size_bytes: The sum over its files.
        files: The files of it that are pinned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=DATASET_NAME)
    source: Literal["hub"]
    repository: str = Field(pattern=REPOSITORY)
    revision: str = Field(pattern=COMMIT)
    size_bytes: int = Field(gt=0)
    files: tuple[PinnedFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        require_sound(self.name, self.size_bytes, self.files)
        require_told_apart(self.repository)
        return self

    @property
    def home(self) -> PurePosixPath:
        """Its folder in the cache, in the hub's own layout; it holds nothing but what is pinned."""
        return PurePosixPath("hub", in_one_word(self.repository))

    @property
    def folder(self) -> PurePosixPath:
        """The folder its files lie in, in the cache."""
        return self.home / "snapshots" / self.revision

    @property
    def reference(self) -> PurePosixPath:
        """The file that says which commit `main` is, to who asks for no revision; without a line's end."""
        return self.home / "refs" / "main"


class BucketDataset(BaseModel):
    """Objects of a public bucket.

    Attributes:
        name: What `assay data` calls it.
        source: Where it is published.
        bucket: The bucket's name.
        size_bytes: The sum over its objects.
        files: The objects.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=DATASET_NAME)
    source: Literal["bucket"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$")
    size_bytes: int = Field(gt=0)
    files: tuple[PinnedObject, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        require_sound(self.name, self.size_bytes, self.files)
        return self

    @property
    def revision(self) -> str:
        """The objects' generations, in the lock's order."""
        return ",".join(file.generation for file in self.files)

    @property
    def home(self) -> PurePosixPath:
        """Its folder in the cache; it holds nothing but what is pinned."""
        return PurePosixPath("gcs", self.name)

    @property
    def folder(self) -> PurePosixPath:
        """The folder its files lie in: the same."""
        return self.home


class RepositoryDataset(BaseModel):
    """A commit of a repository of ModelScope's datasets, or of GitHub.

    Attributes:
        name: What `assay data` calls it.
        source: Where it is published.
        repository: `ORGANISATION/NAME` there.
        revision: The commit, 40 hex digits.
        size_bytes: The sum over its files.
        files: The files of it that are pinned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=DATASET_NAME)
    source: RepositorySource
    repository: str = Field(pattern=REPOSITORY)
    revision: str = Field(pattern=COMMIT)
    size_bytes: int = Field(gt=0)
    files: tuple[PinnedFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        require_sound(self.name, self.size_bytes, self.files)
        require_told_apart(self.repository)
        return self

    @property
    def home(self) -> PurePosixPath:
        """Its folder in the cache; it holds nothing but what is pinned."""
        return PurePosixPath(self.source, in_one_word(self.repository))

    @property
    def folder(self) -> PurePosixPath:
        """The folder its files lie in, in the cache."""
        return self.home / self.revision


class Unpinned(BaseModel):
    """What is wanted and was not pinned yet, since no site that could reach it has done so.

    Attributes:
        name: What `assay data` will call it.
        source: Where it is published.
        repository: `ORGANISATION/NAME` there.
        branch: Whose newest commit is pinned.
        files: Names of the files that are read; empty for all that hold data.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=DATASET_NAME)
    source: RepositorySource
    repository: str = Field(pattern=REPOSITORY)
    branch: str = Field(default="master", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")
    files: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.source == "github" and not self.files:
            raise ValueError(f"{self.name}: name the files that are wanted, since {self.source} lists none")
        return self


Dataset = HubDataset | BucketDataset | RepositoryDataset
DATASET: TypeAdapter[Dataset] = TypeAdapter(Annotated[Dataset, Field(discriminator="source")])


def in_one_word(repository: str) -> str:
    """A repository's name as one path segment, as the hub's libraries write it."""
    return "datasets--" + repository.replace("/", "--")


def require_told_apart(repository: str) -> None:
    """ValueError for a repository that could not be told from another in one path segment."""
    if "--" in repository or ".." in repository:
        raise ValueError(f"{repository}: no repository is called so")


def require_sound(name: str, size_bytes: int, files: Sequence[PinnedFile]) -> None:
    """ValueError unless the files are told apart by their paths and make up the dataset's size."""
    paths = {PurePosixPath(file.path) for file in files}
    if len(paths) != len(files) or any(paths & set(path.parents) for path in paths):
        raise ValueError(f"{name}: a path stands twice, or one file's path leads through another")
    total = sum(file.size_bytes for file in files)
    if total != size_bytes:
        raise ValueError(f"{name}: size_bytes is {size_bytes}, but its files have {total}")


def datasets(lock: Path | None = None) -> dict[str, Dataset]:
    """Every pinned dataset by name.

    Args:
        lock: The lock, or a run's copy of one; that of the pin set in force when None.

    Raises:
        ConfigurationError: it is missing or not well-formed.
    """
    return {name: dataset for name, dataset in _read(lock).items() if not isinstance(dataset, Unpinned)}


def unpinned(lock: Path | None = None) -> dict[str, Unpinned]:
    """Everything that is listed as not pinned yet, by name (raises as `datasets` does)."""
    return {name: dataset for name, dataset in _read(lock).items() if isinstance(dataset, Unpinned)}


def _read(lock: Path | None) -> dict[str, Dataset | Unpinned]:
    path = lock or pinset.current().file(NAME)
    again = f"git checkout {relative(path)}"
    tables = read_toml(path)
    listed = [tables.get(kind, []) for kind in (PINNED, UNPINNED)]
    if set(tables) - {PINNED, UNPINNED} or not all(isinstance(each, list) for each in listed):
        raise ConfigurationError(
            f"{relative(path)} holds something else than [[{PINNED}]] and [[{UNPINNED}]] tables", "", again
        )
    found: dict[str, Dataset | Unpinned] = {}
    homes: set[str] = set()
    for kind, table in [(each, table) for each in (PINNED, UNPINNED) for table in tables.get(each, [])]:
        dataset: Dataset | Unpinned
        try:
            dataset = DATASET.validate_python(table) if kind == PINNED else Unpinned.model_validate(table)
        except ValidationError as error:
            models = (HubDataset, BucketDataset, PinnedObject) if kind == PINNED else (Unpinned,)
            said = describe(error, *models)
            raise ConfigurationError(f"{relative(path)} cannot be used", said, again) from error
        home = f"({dataset.name})" if isinstance(dataset, Unpinned) else str(dataset.home).lower()
        if dataset.name in found or dataset.name == EVERYTHING or home in homes:
            raise ConfigurationError(f"{relative(path)} names {dataset.name} twice", "", again)
        found[dataset.name] = dataset
        homes.add(home)
    return found


def choose(names: Sequence[str]) -> list[Dataset]:
    """The datasets of those names, each once; `all` is every one.

    Raises:
        ConfigurationError: a name is unknown; the nearest is suggested.
        PrerequisiteError: it is known, but nobody has pinned it yet.
    """
    known, waiting = datasets(), unpinned()
    if EVERYTHING in names:
        return list(known.values())
    for name in names:
        if name in waiting:
            raise PrerequisiteError(
                f"task data {name} are not pinned yet",
                f"nobody who could reach {waiting[name].repository} has written its digests into {NAME}",
                f"where {waiting[name].source} can be reached: {command(f'{name} --write-pins')}",
            )
        if name not in known:
            raise ConfigurationError(
                f'no task data is named "{name}"',
                nearest(name, [*known, *waiting, EVERYTHING]),
                command("NAME"),
            )
    return [known[name] for name in dict.fromkeys(names)]


def command(words: str) -> str:
    """The command that gets the data, as it must be typed under the pin set in force."""
    return pinset.typed(f"eval/scripts/data {words}")


def amount(size_bytes: int) -> str:
    """A size as a person reads it, in powers of ten, e.g. "4.49 GB"."""
    if size_bytes >= GIGA:
        return f"{size_bytes / GIGA:.2f} GB"
    if size_bytes >= MEGA:
        return f"{size_bytes / MEGA:.1f} MB"
    return f"{size_bytes:,} bytes"
