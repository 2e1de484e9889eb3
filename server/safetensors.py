"""Where the tensors of a directory of safetensors files lie: headers and index, held to their bounds.

Contract: :func:`stored_tensors` returns every tensor of the directory by its name. The files are hostile
until proven whole: a header is bounded before it is read, its JSON may not name a thing twice, shapes,
types and offsets are held against each other and against the file, the tensors of a file cover it without a
hole or an overlap (as the format demands), and an index names files of the directory itself only. No
tensor's bytes are read here.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server.build import EngineError
from server.vocabulary import shown

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

MOST_HEADER_BYTES = 100_000_000  # the format's own bound
MOST_JSON_BYTES = 64 << 20  # of config.json and the like
MOST_TENSORS = 200_000
MOST_FILES = 10_000
MOST_DIMENSIONS = 8
_LENGTH_BYTES = 8
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.safetensors", re.ASCII)

# Bytes of a value of each type that the format has and that is a whole number of them.
WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}


class CheckpointError(EngineError):
    """A directory is no model that this engine can serve; says what and why."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as it lies in its file."""

    name: str
    path: Path
    dtype: str  # one of WIDTHS
    shape: tuple[int, ...]
    offset: int  # of its first byte in the file
    size_bytes: int

    @property
    def columns(self) -> int:
        """Length of a row: the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """The product of all other dimensions."""
        return math.prod(self.shape[:-1])


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> dict[str, object]:
    """Return the object that a JSON file holds.

    Raises:
        CheckpointError: it is not to be read, too large, no JSON object or names a key twice.
    """
    try:
        # Opened only then: a pipe or a device could keep the reader for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path} is not a regular file")
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error
    if len(data) > most_bytes:
        raise CheckpointError(f"{path} is larger than {most_bytes} bytes")
    return parse_json(data, str(path))


def parse_json(data: bytes, where: str) -> dict[str, object]:
    """Return the JSON object that bytes hold; CheckpointError when they hold none."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError as error:
        raise CheckpointError(f"{where} is nested too deeply") from error
    except ValueError as error:
        raise CheckpointError(f"{where} is no JSON: {shown(str(error))}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} holds no JSON object")
    return value


def stored_tensors(folder: Path) -> Mapping[str, Stored]:
    """Return the tensors of a directory by name; CheckpointError says what is wrong with it."""
    if (folder / INDEX).exists():
        return _indexed(folder)
    return {tensor.name: tensor for tensor in read_header(folder / SINGLE)}


def tensor_files(folder: Path) -> tuple[Path, ...]:
    """Return the files that tensors lie in, sorted by name; CheckpointError when the index is wrong."""
    if not (folder / INDEX).exists():
        return (folder / SINGLE,)
    return tuple(folder / name for name in sorted(set(_weight_map(folder).values())))


def read_header(path: Path) -> tuple[Stored, ...]:
    """Return the tensors of one file in the order in which they lie."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path} is not a regular file")
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
                raise CheckpointError(f"{path} ends inside its header")
            if length > MOST_HEADER_BYTES:
                raise CheckpointError(f"{path} claims a header of {length} bytes")
            data = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error
    entries = parse_json(data, f"the header of {path}")
    entries.pop("__metadata__", None)
    if len(entries) > MOST_TENSORS:
        raise CheckpointError(f"{path} claims {len(entries)} tensors")
    start = _LENGTH_BYTES + length
    tensors = sorted(
        (_tensor(path, name, entry, start, size) for name, entry in entries.items()),
        key=lambda tensor: (tensor.offset, tensor.size_bytes),
    )
    _check_cover(path, tensors, start, size)
    return tuple(tensors)


def _tensor(path: Path, name: str, entry: object, start: int, file_size: int) -> Stored:
    where = f"{path}: tensor {shown(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} is not described by `dtype`, `shape` and `data_offsets`")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    width = WIDTHS.get(dtype) if isinstance(dtype, str) else None
    if width is None:
        raise CheckpointError(f"{where} has the type {shown(dtype)}, which is not read")
    if not name.isascii() or not name.isprintable() or not name:
        raise CheckpointError(f"{where}: its name is no printable ASCII")
    if not _counts(shape) or len(shape) > MOST_DIMENSIONS:
        raise CheckpointError(f"{where} has the shape {shown(shape)}")
    if not _counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where} has the offsets {shown(offsets)}")
    begin, end = offsets
    if not begin <= end <= file_size - start:
        raise CheckpointError(f"{where} lies past the end of the file")
    if end - begin != width * math.prod(shape):
        raise CheckpointError(
            f"{where} is {end - begin} bytes long, its shape {shown(shape)} asks for others"
        )
    return Stored(name, path, dtype, tuple(shape), start + begin, end - begin)


def _check_cover(path: Path, tensors: list[Stored], start: int, file_size: int) -> None:
    end = start
    for tensor in tensors:
        if tensor.offset != end:
            what = "overlaps with what lies before it" if tensor.offset < end else "lies behind a hole"
            raise CheckpointError(f"{path}: tensor {shown(tensor.name)} {what}")
        end += tensor.size_bytes
    if end != file_size:
        raise CheckpointError(f"{path} has {file_size - end} bytes behind its last tensor")


def _indexed(folder: Path) -> Mapping[str, Stored]:
    weight_map = _weight_map(folder)
    found: dict[str, Stored] = {}
    for path in tensor_files(folder):
        for tensor in read_header(path):
            if weight_map.get(tensor.name) != path.name:
                raise CheckpointError(
                    f"{folder / INDEX} does not say that {path.name} holds {shown(tensor.name)}"
                )
            found[tensor.name] = tensor
    missing = weight_map.keys() - found.keys()
    if missing:
        raise CheckpointError(
            f"tensor {shown(min(missing))} does not lie in the file that {folder / INDEX} names"
        )
    return found


def _weight_map(folder: Path) -> Mapping[str, str]:
    where = folder / INDEX
    weight_map = read_json(where).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{where} has no object `weight_map`")
    for name in weight_map.values():
        # A name and nothing else: no other directory, no parent, no absolute path.
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            raise CheckpointError(
                f"{where} names {shown(name)}, which is no safetensors file of the directory"
            )
    if len(set(weight_map.values())) > MOST_FILES:
        raise CheckpointError(f"{where} names more than {MOST_FILES} files")
    return weight_map


def _counts(value: object) -> bool:
    """Whether a value is a list of whole numbers from 0 that sizes can be computed from."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} stands twice")
        found[name] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")
