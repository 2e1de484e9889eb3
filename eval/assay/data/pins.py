"""`datasets.lock`: the task data, each file named by its size and digest and by where its publisher keeps it.

A dataset of the hub is one commit of a dataset repository and those files of it that a taskset reads. A
dataset of a bucket is a set of objects, each at one generation. The lock decides; what a host says about a
file is compared with it and believed in nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from assay import pinset
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import relative
from assay.profile import describe, read_toml

NAME = "datasets.lock"
EVERYTHING = "all"
MEGA = 1_000_000
GIGA = 1_000_000_000
Algorithm = Literal["sha256", "git-sha1"]


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

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    source: Literal["hub"]
    repository: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    size_bytes: int = Field(gt=0)
    files: tuple[PinnedFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        require_sound(self.name, self.size_bytes, self.files)
        if "--" in self.repository or ".." in self.repository:
            raise ValueError(f"{self.repository}: no repository of the hub is called so")
        return self

    @property
    def home(self) -> PurePosixPath:
        """Its folder in the cache, in the hub's own layout; it holds nothing but what is pinned."""
        return PurePosixPath("hub", "datasets--" + self.repository.replace("/", "--"))

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

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
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


Dataset = HubDataset | BucketDataset
DATASET: TypeAdapter[Dataset] = TypeAdapter(Annotated[Dataset, Field(discriminator="source")])


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
    path = lock or pinset.current().file(NAME)
    again = f"git checkout {relative(path)}"
    tables = read_toml(path)
    if set(tables) - {"dataset"} or not isinstance(tables.get("dataset", []), list):
        raise ConfigurationError(f"{relative(path)} holds something else than [[dataset]] tables", "", again)
    found: dict[str, Dataset] = {}
    for table in tables.get("dataset", []):
        try:
            dataset = DATASET.validate_python(table)
        except ValidationError as error:
            said = describe(error, HubDataset, BucketDataset, PinnedObject)
            raise ConfigurationError(f"{relative(path)} cannot be used", said, again) from error
        homes = {str(other.home).lower() for other in found.values()}
        if dataset.name in found or dataset.name == EVERYTHING or str(dataset.home).lower() in homes:
            raise ConfigurationError(f"{relative(path)} names {dataset.name} twice", "", again)
        found[dataset.name] = dataset
    return found


def choose(names: Sequence[str]) -> list[Dataset]:
    """The datasets of those names, each once; `all` is every one.

    Raises:
        ConfigurationError: a name is unknown; the nearest is suggested.
    """
    known = datasets()
    if EVERYTHING in names:
        return list(known.values())
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f'no task data is named "{name}"',
                nearest(name, [*known, EVERYTHING]),
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
