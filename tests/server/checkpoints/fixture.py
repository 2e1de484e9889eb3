"""The fixtures as tests use them: a float checkpoint in any form, and golden logits."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Kind

from tests.server.checkpoints.gguf_form import write_gguf
from tests.server.checkpoints.models import MODELS
from tests.server.checkpoints.weights import bfloat16_bytes

Floats = npt.NDArray[np.float32]


def config(name: str) -> dict[str, object]:
    """A checkpoint's config.json."""
    found: dict[str, object] = json.loads((MODELS[name].folder / "config.json").read_text("utf-8"))
    return found


def text(name: str) -> dict[str, object]:
    """The configuration of its text model, which a checkpoint with vision keeps one level down."""
    whole = config(name)
    found = whole.get("text_config", whole)
    assert isinstance(found, dict)
    return found


def values(name: str) -> dict[str, Floats]:
    """Every tensor of a float checkpoint, by the public implementation's name; each holds its digest."""
    tiny, found = MODELS[name], {}
    for tensor, (shape, digest) in json.loads((tiny.folder / "tensors.json").read_text("utf-8")).items():
        value = tiny.values(tensor, tuple(shape))
        if hashlib.sha256(bfloat16_bytes(value)).hexdigest() != digest:
            raise AssertionError(f"{name}: {tensor} is not what the golden logits were computed from")
        found[tensor] = value
    return found


def golden(name: str) -> list[tuple[npt.NDArray[np.int64], Floats]]:
    """Each prompt's token ids, and the public implementation's logits after each of them."""
    with np.load(MODELS[name].folder / "golden.npz") as file:
        count = sum(key.startswith("tokens_") for key in file.files)
        return [(file[f"tokens_{index}"], file[f"logits_{index}"]) for index in range(count)]


def dequantised(name: str) -> dict[str, str]:
    """Of a quantised directory: each matrix's module, and the digest of what its packer unpacks it to."""
    found: dict[str, str] = json.loads((MODELS[name].folder / "dequantised.json").read_text("utf-8"))
    return found


def sample(name: str) -> tuple[str, Floats]:
    """Of a quantised directory: one such module, and the first of its dequantised rows."""
    with np.load(MODELS[name].folder / "golden.npz") as file:
        return str(file["sample_name"]), file["sample"]


def as_gguf(name: str, path: Path, kind: Kind = Kind.F32) -> Path:
    """Write a float checkpoint as a GGUF file; the path."""
    write_gguf(config(name), values(name), path, kind)
    return path


def as_directory(name: str, folder: Path, dtype: str = "BF16", shards: int = 1) -> Path:
    """Write a float checkpoint as a directory of safetensors (F32, BF16 or F16); the folder.

    F16 holds the values only where they are ones of half precision: what is too small for it is rounded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(name)), "utf-8")
    tensors = {tensor: (dtype, value.shape, _bytes(value, dtype)) for tensor, value in values(name).items()}
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    weight_map = {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(folder / file, {tensor: tensors[tensor] for tensor in names[index::shards]})
        weight_map.update(dict.fromkeys(names[index::shards], file))
    total = sum(len(data) for _, _, data in tensors.values())
    written = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(written), "utf-8")
    return folder


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write a safetensors file: a header's length, the header, then every tensor's bytes without a gap."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def _bytes(value: Floats, dtype: str) -> bytes:
    if dtype == "BF16":
        return bfloat16_bytes(value)
    return np.ascontiguousarray(value).astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()
