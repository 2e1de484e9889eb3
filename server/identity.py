"""What exactly answers here: `GET /identity` and the `system_fingerprint` of every response.

The fingerprint is `assay-` and the first 16 hex digits of the SHA-256 over the canonical JSON (sorted keys,
no spaces, UTF-8) of the identity's parts that decide an answer's bytes:

    {"model": {"file_sha256"}, "tokenizer", "chat_template",
     "engine": {"library_sha256", "isa"}, "server", "settings": {"context", "kv_dtype", "head"}}

each copied from the identity as it stands, so whoever holds an identity can compute the fingerprint again.
Threads, slots, chunk sizes and speculation are left out: they cannot change an answer. It is the server's
own claim.
Of a model that is a directory, `file_sha256` is over the canonical JSON of its files' names and digests.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Event

from server.vocabulary import unsupported

SCHEMA = "assay/identity/v1"
READ_BYTES = 1 << 20

# GGUF's `general.file_type` numbers of the formats that the engine reads.
QUANTISATIONS = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    32: "BF16",
}

# Libraries whose code takes part in making an answer.
LIBRARIES = ("jinja2", "llguidance", "numpy", "tokenizers")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the engine says about itself; see server/engine.py."""

    version: str
    library_sha256: str
    source_sha256: str
    compiler: str
    flags: str
    isa: str
    device: str  # "cpu" or "cuda"
    kv_dtype: str
    head: str  # "stored" or "q8_0"
    threads: int
    slots: int
    context: int


class GivenUpError(Exception):
    """Nobody wants a digest any more."""


def file_sha256(path: Path, given_up: Event | None = None) -> str:
    """Return the SHA-256 of a file's bytes, in hex; hashing releases the interpreter lock.

    Raises:
        GivenUpError: the event was set before the end.
    """
    digest = hashlib.sha256()
    buffer = bytearray(READ_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            if given_up is not None and given_up.is_set():
                raise GivenUpError(path.name)
            digest.update(view[:count])
    return digest.hexdigest()


def files_sha256(files: Sequence[Path], given_up: Event | None = None) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of files' names and their digests.

    Raises:
        GivenUpError: the event was set before the end.
    """
    return hashlib.sha256(canonical({path.name: file_sha256(path, given_up) for path in files})).hexdigest()


def canonical(value: object) -> bytes:
    """Return the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def tokenizer_sha256(metadata: Mapping[str, object]) -> str:
    """Return the SHA-256 over the canonical JSON of all `tokenizer.ggml.*` metadata; StartError for NaN."""
    part = {key: value for key, value in metadata.items() if key.startswith("tokenizer.ggml.")}
    try:
        return hashlib.sha256(canonical(part)).hexdigest()
    except ValueError as error:
        raise unsupported("a number in its `tokenizer.ggml.*` metadata is not finite") from error


def source_sha256(folder: Path) -> str:
    """Return the SHA-256 over names and digests of the server's own Python files."""
    files = {path.name: file_sha256(path) for path in sorted(folder.glob("*.py"))}
    return hashlib.sha256(canonical(files)).hexdigest()


def device_name() -> str:
    """Return the processor's name as the kernel gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def describe(
    *,
    name: str,
    model_sha256: str,
    size_bytes: int,
    metadata: Mapping[str, object],
    tokenizer: str,
    template: str,
    engine: EngineFacts,
    prefill_chunk: int,
    speculation: Mapping[str, object],
    quantisation: str | None = None,
) -> dict[str, object]:
    """Return the identity document, its fingerprint included.

    Args:
        name: of the model, in the API.
        model_sha256: of the model file, or over the files of a directory (:func:`files_sha256`).
        size_bytes: of all that was hashed.
        metadata: as GGUF names it.
        tokenizer: :func:`tokenizer_sha256` of it.
        template: the chat template's text; "" when there is none.
        engine: what the engine says of itself.
        prefill_chunk: rows of a prompt that are computed together.
        speculation: how tokens are guessed, if they are.
        quantisation: how the weights are stored; by default what a GGUF file says of itself.
    """
    file_type = metadata.get("general.file_type")
    if quantisation is None and isinstance(file_type, int):
        quantisation = QUANTISATIONS.get(file_type)
    identity: dict[str, object] = {
        "schema": SCHEMA,
        "model": {
            "name": name,
            "file_sha256": model_sha256,
            "size_bytes": size_bytes,
            "architecture": metadata.get("general.architecture"),
            "quantisation": quantisation,
        },
        "tokenizer": {"sha256": tokenizer},
        "chat_template": {"sha256": hashlib.sha256(template.encode()).hexdigest()},
        "engine": {
            "version": engine.version,
            "library_sha256": engine.library_sha256,
            "source_sha256": engine.source_sha256,
            "compiler": engine.compiler,
            "flags": engine.flags,
            "isa": engine.isa,
        },
        "server": {
            "source_sha256": source_sha256(Path(__file__).parent),
            "libraries": {library: version(library) for library in LIBRARIES},
        },
        "device": {
            "kind": engine.device,
            "name": device_name() if engine.device == "cpu" else engine.isa,
        },
        "settings": {
            "threads": engine.threads,
            "slots": engine.slots,
            "context": engine.context,
            "kv_dtype": engine.kv_dtype,
            "head": engine.head,
            "prefill_chunk": prefill_chunk,
            "speculation": dict(speculation),
        },
    }
    return {**identity, "system_fingerprint": fingerprint(identity)}


def fingerprint(identity: Mapping[str, object]) -> str:
    """Return the fingerprint of an identity document, as this module's docstring defines it."""
    chosen: dict[str, object] = {
        "model": _part(identity, "model", "file_sha256"),
        "tokenizer": identity["tokenizer"],
        "chat_template": identity["chat_template"],
        "engine": _part(identity, "engine", "library_sha256", "isa"),
        "server": identity["server"],
        "settings": _part(identity, "settings", "context", "kv_dtype", "head"),
    }
    return "assay-" + hashlib.sha256(canonical(chosen)).hexdigest()[:16]


def _part(identity: Mapping[str, object], section: str, *keys: str) -> dict[str, object]:
    values = identity[section]
    if not isinstance(values, Mapping):
        raise TypeError(f"the identity's {section} is no object")
    return {key: values[key] for key in keys}
