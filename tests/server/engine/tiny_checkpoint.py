"""A synthetic model as a safetensors author stores it, in every form that is served; written with numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]

DTYPES = {"f4": "F32", "f2": "F16", "i4": "I32", "i8": "I64", "u1": "U8"}
GROUP = 128
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


@dataclass(frozen=True)
class Stored:
    """A tensor's bytes with the type that the format has for them."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes = field(repr=False)


def stored(values: Array) -> Stored:
    """An array as it is."""
    return Stored(DTYPES[values.dtype.str[1:]], values.shape, values.tobytes())


def bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    """The bits of the nearest BF16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits: npt.NDArray[np.uint16]) -> Floats:
    """What BF16 bits mean."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write(path: Path, tensors: Mapping[str, Stored], *, padding: int = 0) -> None:
    """Write one file; `padding` spaces behind the header put the data at any alignment."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + len(tensor.data)],
        }
        at += len(tensor.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + padding)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t.data for t in tensors.values()))


def nibbles(random: np.random.Generator, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Random 4-bit values, each of the sixteen."""
    return random.integers(0, 16, (rows, columns)).astype(np.uint8)


def packed_words(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Eight 4-bit values of a row in each word, the first lowest."""
    rows, columns = values.shape
    parts = values.reshape(rows, columns // 8, 8).astype(np.uint32)
    shifted = parts << (4 * np.arange(8, dtype=np.uint32))
    return np.bitwise_or.reduce(shifted, axis=2).view(np.int32)


def half_scales(random: np.random.Generator, shape: tuple[int, ...], kind: str) -> tuple[Stored, Floats]:
    """Scales of 16 bits, as they are stored and what they mean."""
    values = random.uniform(0.02, 0.06, shape).astype(np.float32) / 8
    if kind == "F16":
        halves = values.astype(np.float16)
        return stored(halves), halves.astype(np.float32)
    bits = bfloat16(values)
    return Stored("BF16", shape, bits.tobytes()), widened(bits)


def rounded(values: Floats, kind: str) -> Floats:
    """Values rounded to F16 or BF16, as the quantiser's own package leaves them."""
    return values.astype(np.float16).astype(np.float32) if kind == "F16" else widened(bfloat16(values))


def pack_quantized(
    random: np.random.Generator, rows: int, columns: int, kind: str
) -> tuple[dict[str, Stored], Floats]:
    """A matrix as compressed-tensors' `pack-quantized` has it: its tensors, and what they mean."""
    values = nibbles(random, rows, columns)
    scales, wide = half_scales(random, (rows, columns // GROUP), kind)
    tensors = {
        "weight_packed": stored(packed_words(values)),
        "weight_scale": scales,
        "weight_shape": stored(np.array([rows, columns], np.int64)),
    }
    exact = (values.astype(np.float32) - 8) * np.repeat(wide, GROUP, axis=1)
    return tensors, rounded(exact, kind)


def gptq(
    random: np.random.Generator, rows: int, columns: int, kind: str = "F16", zero: int = 7
) -> tuple[dict[str, Stored], Floats]:
    """A matrix as GPTQ has it."""
    values = nibbles(random, rows, columns)
    scales, wide = half_scales(random, (columns // GROUP, rows), kind)
    zeros = np.full((rows, columns // GROUP), zero, np.uint8).T.copy()
    tensors = {
        "qweight": stored(packed_words(values).T.copy()),
        "qzeros": stored(packed_words(zeros)),
        "scales": scales,
        "g_idx": stored((np.arange(columns) // GROUP).astype(np.int32)),
    }
    exact = (values.astype(np.float32) - 8) * np.repeat(wide.T, GROUP, axis=1)
    return tensors, rounded(exact, kind)


def nvfp4(random: np.random.Generator, rows: int, columns: int) -> tuple[dict[str, Stored], Floats]:
    """A matrix as compressed-tensors' `nvfp4-pack-quantized` has it."""
    values = nibbles(random, rows, columns)
    # E4M3 of exponents 3 to 10 with any fraction: (1 + f / 8) * 2^(e - 7).
    exponents, fractions = random.integers(3, 11, (2, rows, columns // 16))
    fractions %= 8
    scale_bits = (exponents << 3 | fractions).astype(np.uint8)
    scale = ((1 + fractions / 8) * 2.0 ** (exponents - 7)).astype(np.float32)
    whole = np.float32(150.3)
    tensors = {
        "weight_packed": stored((values[:, 0::2] | values[:, 1::2] << 4).astype(np.uint8)),
        "weight_scale": Stored("F8_E4M3", scale.shape, scale_bits.tobytes()),
        "weight_global_scale": stored(np.array([whole], np.float32)),
        "input_global_scale": stored(np.array([1.0], np.float32)),
    }
    exact = E2M1[values] * np.repeat(scale / whole, 16, axis=1)
    return tensors, widened(bfloat16(exact))


COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": GROUP,
                "dynamic": False,
            },
            "input_activations": None,
        }
    },
    "ignore": ["lm_head"],
}
NVFP4 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 16},
            "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local", "group_size": 16},
        }
    },
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}
QUANTISED = {"pack-F16": COMPRESSED, "pack-BF16": COMPRESSED, "gptq": GPTQ, "nvfp4": NVFP4}


@dataclass(frozen=True)
class TinyCheckpoint:
    """A `llama` or `qwen3` of two layers; widths are multiples of what every form needs."""

    form: str = "F32"  # of the layers' matrices: F32, F16, BF16 or one of QUANTISED
    architecture: str = "llama"
    tied: bool = False
    layers: int = 2
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ffn: int = 256
    vocabulary: int = 72
    context: int = 512
    seed: int = 11

    def config(self) -> dict[str, object]:
        """What config.json says."""
        values: dict[str, object] = {
            "model_type": self.architecture,
            "hidden_act": "silu",
            "hidden_size": self.width,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": self.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
        }
        if self.form in QUANTISED:
            values["quantization_config"] = QUANTISED[self.form]
        return values

    def tensors(self) -> tuple[dict[str, Stored], dict[str, Floats]]:
        """The tensors as they are stored, and what each module's matrix or vector means."""
        random = np.random.default_rng(self.seed)
        found: dict[str, Stored] = {}
        meant: dict[str, Floats] = {}

        def vector(name: str, size: int) -> None:
            values = (1 + 0.1 * random.standard_normal(size)).astype(np.float32)
            if self.form == "F32":
                found[name], meant[name] = stored(values), values
            else:
                bits = bfloat16(values)
                found[name], meant[name] = Stored("BF16", values.shape, bits.tobytes()), widened(bits)

        def plain(module: str, rows: int, columns: int, gain: float = 1.0) -> None:
            values = (gain * random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
            if self.form == "F16":
                found[f"{module}.weight"] = stored(values.astype(np.float16))
                meant[module] = values.astype(np.float16).astype(np.float32)
            elif self.form == "BF16":
                bits = bfloat16(values)
                found[f"{module}.weight"] = Stored("BF16", values.shape, bits.tobytes())
                meant[module] = widened(bits)
            else:
                found[f"{module}.weight"], meant[module] = stored(values), values

        def matrix(module: str, rows: int, columns: int) -> None:
            if self.form not in QUANTISED:
                plain(module, rows, columns)
                return
            if self.form == "gptq":
                parts, meant[module] = gptq(random, rows, columns)
            elif self.form == "nvfp4":
                parts, meant[module] = nvfp4(random, rows, columns)
            else:
                parts, meant[module] = pack_quantized(random, rows, columns, self.form.partition("-")[2])
            found.update({f"{module}.{part}": tensor for part, tensor in parts.items()})

        plain("model.embed_tokens", self.vocabulary, self.width, 8.0)
        for index in range(self.layers):
            layer = f"model.layers.{index}."
            vector(f"{layer}input_layernorm.weight", self.width)
            vector(f"{layer}post_attention_layernorm.weight", self.width)
            q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
            matrix(f"{layer}self_attn.q_proj", q, self.width)
            matrix(f"{layer}self_attn.k_proj", kv, self.width)
            matrix(f"{layer}self_attn.v_proj", kv, self.width)
            matrix(f"{layer}self_attn.o_proj", self.width, q)
            if self.architecture == "qwen3":
                vector(f"{layer}self_attn.q_norm.weight", self.head_dim)
                vector(f"{layer}self_attn.k_norm.weight", self.head_dim)
            matrix(f"{layer}mlp.gate_proj", self.ffn, self.width)
            matrix(f"{layer}mlp.up_proj", self.ffn, self.width)
            matrix(f"{layer}mlp.down_proj", self.width, self.ffn)
        vector("model.norm.weight", self.width)
        if not self.tied:
            plain("lm_head", self.vocabulary, self.width, 4.0)
        return found, meant

    def write(self, folder: Path, *, shards: int = 1, padding: int = 0) -> Path:
        """Write the directory, in one file or in shards with an index."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config()))
        tensors, _ = self.tensors()
        if shards == 1:
            write(folder / "model.safetensors", tensors, padding=padding)
            return folder
        names = list(tensors)
        weight_map = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            chosen = {name: tensors[name] for name in names[shard::shards]}
            write(folder / file, chosen, padding=padding)
            weight_map.update(dict.fromkeys(chosen, file))
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder
