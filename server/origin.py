"""Where a served model comes from: a GGUF file, or a directory of safetensors files.

Contract: an :class:`Origin` is what loading asks: what the engine is given, which files decide the answers
and their digest, and the whole metadata (of a directory with its tokenizer's, in the words of a file).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from server import identity
from server.checkpoint import CONFIG, Checkpoint, model_files, read
from server.checkpoint_tokenizer import read_tokenizer
from server.errors import MISSING_DEPENDENCY, StartError
from server.safetensors import CheckpointError

MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Origin:
    """A model's files, not yet loaded."""

    path: Path
    checkpoint: Checkpoint | None  # None: the path is a GGUF file

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that decides how the model answers."""
        return (self.path,) if self.checkpoint is None else model_files(self.path)

    @property
    def model(self) -> Path | Checkpoint:
        """What the engine loads."""
        return self.path if self.checkpoint is None else self.checkpoint

    @property
    def quantisation(self) -> str | None:
        """How the weights are stored; None: as the file's metadata says."""
        return None if self.checkpoint is None else self.checkpoint.kind

    @property
    def note(self) -> str:
        """What a person should know of how the weights are computed with; "" for nothing."""
        return "" if self.checkpoint is None else self.checkpoint.form.note

    def sha256(self, given_up: Event | None = None) -> str:
        """Return the digest of the file, or over a directory's files; reads every byte.

        Raises:
            GivenUpError: the event was set before the end.
        """
        if self.checkpoint is None:
            return identity.file_sha256(self.path, given_up)
        return identity.files_sha256(self.files, given_up)

    def size_bytes(self) -> int:
        """Return how many bytes the digest is over."""
        return sum(path.stat().st_size for path in self.files)

    def check_files(self) -> None:
        """Open every file, and read none: one that cannot be hashed is known before the rest is read.

        Raises:
            CheckpointError: one of a directory's is no regular file.
            StartError: one of them cannot be opened.
        """
        for path in self.files:
            try:
                path.open("rb").close()
            except OSError as error:
                why = error.strerror or type(error).__name__
                command = f"ls -lL '{path}'"
                raise StartError(
                    f"the file {path} cannot be read", why, command, MISSING_DEPENDENCY
                ) from error

    def metadata(self, loaded: Mapping[str, object], vocabulary: int) -> Mapping[str, object]:
        """Return metadata as the engine's library reads it, with a directory's tokenizer of so many ids.

        Raises:
            StartError: the directory has no tokenizer that is served.
        """
        if self.checkpoint is None:
            return loaded
        try:
            return {**loaded, **read_tokenizer(self.path, vocabulary)}
        except CheckpointError as error:
            raise StartError(
                f"the tokenizer of {self.path} cannot be read",
                str(error),
                f"ls -l '{self.path}'",
                MISSING_DEPENDENCY,
            ) from error


def find_origin(path: Path) -> Origin:
    """Return the origin at a path; CheckpointError when it is a directory and no model that is served."""
    return Origin(path, read(path) if path.is_dir() else None)


def model_name(path: Path) -> str:
    """Return the name of a model that was given none: its directory's, or its file's stem."""
    return path.absolute().name if path.is_dir() else path.stem


def check_model(path: Path) -> None:
    """Raise StartError unless `path` is a readable GGUF file or a directory with a config.json.

    Of a file four bytes are read, of a directory nothing.
    """
    if path.is_dir():
        if not (path / CONFIG).is_file():
            why, command = f"it is a directory without {CONFIG}", f"ls -l '{path}'"
            raise StartError(f"the model {path} cannot be read", why, command, MISSING_DEPENDENCY)
        return
    if not path.is_file():
        why, command = "there is no such file", "assay model fetch NAME"
        raise StartError(f"the model {path} cannot be read", why, command, MISSING_DEPENDENCY)
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StartError(f"the model {path} cannot be read", why, f"ls -l '{path}'") from error
    if magic != MAGIC:
        raise StartError(
            f"the model {path} is not a GGUF file",
            f"it begins with {magic!r}, not {MAGIC!r}",
            "assay model fetch NAME",
            MISSING_DEPENDENCY,
        )
