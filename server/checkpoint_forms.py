"""How a safetensors author stores a matrix: plain, or quantised in a form that the engine reads as it lies.

Served are F32, F16 and BF16; 4-bit integers with a scale for each 128 values, symmetric, as compressed-
tensors (`pack-quantized`) and GPTQ pack them; and NVFP4 as compressed-tensors packs it. Every other form is
an error that names it: a zero point or an order of columns left out would be silently a worse model. What
`config.json` says is held against the tensors that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from server.fields import Fields
from server.safetensors import CheckpointError, Stored
from server.vocabulary import shown

GROUP = 128  # values that a scale of a 4-bit integer covers
NVFP4_GROUP = 16
WORD = 8  # nibbles in an int32

# Numbers of engine/gguf.h (types) and of assay_storage.
PLAIN = {"F32": 0, "F16": 1, "BF16": 30}
W4 = {"F16": 1000, "BF16": 1001}
NVFP4 = 1002
ROWS, PACKED, GPTQ, NVFP4_PACKED = range(4)


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor as the engine is told of it: assay_tensor_source."""

    name: str  # as GGUF has it
    values: Stored
    columns: int
    rows: int
    kind: int  # a tensor type
    storage: int = ROWS
    scales: Stored | None = None
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Form:
    """The quantisation that `config.json` declares."""

    name: str  # for the identity; "" when there is none
    method: str = ""  # "compressed-tensors" or "gptq"
    zero: int = 0  # GPTQ: what every stored zero has to be
    note: str = ""  # what a person is told in the log


def read_form(config: Fields) -> Form:
    """Return the declared quantisation; CheckpointError names one that is not served."""
    for name in ("quantization_config", "compression_config"):
        if config.has(name):
            declared = config.table(name)
            method = declared.text("quant_method", "compressed-tensors")
            if method == "compressed-tensors":
                return _compressed(declared)
            if method == "gptq":
                return _gptq(declared)
            raise declared.wrong("quant_method", "which is not served ('compressed-tensors' and 'gptq' are)")
    return Form("")


def _gptq(declared: Fields) -> Form:
    declared.must_be("bits", 4)
    declared.must_be("group_size", GROUP)
    declared.must_be("sym", True)
    declared.must_be("desc_act", False)
    declared.must_be("lm_head", False)
    declared.must_be("pack_dtype", "int32")
    # A rule without content only says which layers are quantised, which their tensors say too.
    if any(declared.table("dynamic").values.values()):
        raise declared.wrong("dynamic", "and other quantisations of single layers are not served")
    layout = declared.text("checkpoint_format", "gptq")
    if layout not in ("gptq", "gptq_v2"):
        raise declared.wrong("checkpoint_format", "which is not served ('gptq' and 'gptq_v2' are)")
    # The first version stores a zero one less than it means.
    return Form(f"W4A16 g{GROUP} (GPTQ)", "gptq", 7 if layout == "gptq" else 8)


def _compressed(declared: Fields) -> Form:
    groups = declared.table("config_groups")
    if not groups.values:
        raise declared.wrong("config_groups", "an object without a group")
    names = sorted({_group(groups.table(name)) for name in groups.values})
    if declared.has("kv_cache_scheme"):
        raise declared.wrong("kv_cache_scheme", "and quantised keys and values are not read from a model")
    if declared.table("sparsity_config").text("format", "dense") != "dense":
        raise declared.wrong("sparsity_config", "and sparse weights are not served")
    if declared.has("transform_config") and declared.table("transform_config").table("config_groups").values:
        raise declared.wrong("transform_config", "and transformed weights are not served")
    note = ""
    if any(name.startswith("NVFP4") for name in names):
        note = "NVFP4 weights meet int8 activations here: no FP4 unit is used"
    return Form(" + ".join(names), "compressed-tensors", note=note)


def _group(group: Fields) -> str:
    weights = group.table("weights")
    if weights.text("type", "int") == "float":
        weights.must_be("num_bits", 4)
        weights.must_be("group_size", NVFP4_GROUP)
        weights.must_be("strategy", "tensor_group")
        weights.must_be("symmetric", True)
        return "NVFP4 (nvfp4-pack-quantized, as int8)"
    weights.must_be("type", "int")
    weights.must_be("num_bits", 4)
    weights.must_be("symmetric", True)
    weights.must_be("group_size", GROUP)
    weights.must_be("strategy", "group")
    if group.has("input_activations"):
        raise group.wrong("input_activations", "and activations quantised by the model are not served")
    return f"W4A16 g{GROUP} (pack-quantized)"


class Forms:
    """The tensors of a directory, taken one matrix after the other."""

    def __init__(self, tensors: Mapping[str, Stored], form: Form) -> None:
        self._tensors = tensors
        self._form = form
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._tensors

    def left(self) -> Iterator[str]:
        """The names of the tensors that nothing was made of."""
        return (name for name in self._tensors if name not in self._taken)

    def plain(self, stored_name: str, name: str) -> Source:
        """Return a tensor that is not quantised; its last dimension is the row."""
        stored = self._take(stored_name)
        kind = PLAIN.get(stored.dtype)
        if kind is None:
            raise CheckpointError(
                f"tensor {shown(stored_name)} is {stored.dtype}; F32, F16 and BF16 are read"
            )
        return Source(name, stored, stored.columns, stored.rows, kind)

    def matrix(self, module: str, name: str) -> Source:
        """Return a module's matrix in whatever form it lies."""
        if f"{module}.bias" in self._tensors:
            raise CheckpointError(f"tensor {shown(f'{module}.bias')}: a bias is not served")
        if f"{module}.weight_packed" in self._tensors:
            self._need("compressed-tensors", f"{module}.weight_packed")
            return self._compressed(module, name)
        if f"{module}.qweight" in self._tensors:
            self._need("gptq", f"{module}.qweight")
            return self._gptq(module, name)
        return self.plain(f"{module}.weight", name)

    def _need(self, method: str, tensor: str) -> None:
        if self._form.method != method:
            raise CheckpointError(f"tensor {shown(tensor)} is quantised, which config.json does not say")

    def _compressed(self, module: str, name: str) -> Source:
        for part, what in (("weight_zero_point", "a zero point"), ("weight_g_idx", "an order of columns")):
            if f"{module}.{part}" in self._tensors:
                raise CheckpointError(f"tensor {shown(f'{module}.{part}')}: {what} is not served")
        packed = self._take(f"{module}.weight_packed", 2)
        scales = self._take(f"{module}.weight_scale", 2)
        if packed.dtype == "U8":
            return self._nvfp4(module, name, packed, scales)
        rows, columns = packed.shape[0], packed.shape[1] * WORD
        self._expect(packed, "I32", (rows, columns // WORD))
        self._expect(scales, W4, (rows, columns // GROUP))
        shape = self._take(f"{module}.weight_shape", 1)
        self._expect(shape, ("I64", "I32"), (2,))
        said = tuple(read_array(shape, "<i8" if shape.dtype == "I64" else "<i4").tolist())
        if said != (rows, columns):
            raise CheckpointError(
                f"tensor {shown(shape.name)} says {said}, its weights are {(rows, columns)}"
            )
        return Source(name, packed, columns, rows, W4[scales.dtype], PACKED, scales)

    def _nvfp4(self, module: str, name: str, packed: Stored, scales: Stored) -> Source:
        rows, columns = packed.shape[0], packed.shape[1] * 2
        self._expect(scales, ("F8_E4M3",), (rows, columns // NVFP4_GROUP))
        whole = self._take(f"{module}.weight_global_scale")
        if whole.dtype != "F32" or whole.size_bytes != 4:
            raise CheckpointError(f"tensor {shown(whole.name)} is not one F32 value")
        # What activations would be scaled by before FP4; they stay int8 here.
        self._taken.add(f"{module}.input_global_scale")
        (factor,) = struct.unpack("<f", read_bytes(whole))
        return Source(name, packed, columns, rows, NVFP4, NVFP4_PACKED, scales, factor)

    def _gptq(self, module: str, name: str) -> Source:
        words = self._take(f"{module}.qweight", 2)
        columns, rows = words.shape[0] * WORD, words.shape[1]
        self._expect(words, "I32", (columns // WORD, rows))
        scales = self._take(f"{module}.scales", 2)
        self._expect(scales, W4, (columns // GROUP, rows))
        zeros = self._take(f"{module}.qzeros", 2)
        self._expect(zeros, "I32", (columns // GROUP, rows // WORD))
        wanted = int(f"{self._form.zero:x}" * WORD, 16)
        if (read_array(zeros, "<u4") != wanted).any():
            raise CheckpointError(f"tensor {shown(zeros.name)}: zeros other than 8 are not served")
        if f"{module}.g_idx" in self._tensors:
            order = self._take(f"{module}.g_idx", 1)
            self._expect(order, "I32", (columns,))
            if (read_array(order, "<i4") != np.arange(columns) // GROUP).any():
                raise CheckpointError(f"tensor {shown(order.name)}: columns in another order are not served")
        return Source(name, words, columns, rows, W4[scales.dtype], GPTQ, scales)

    def _take(self, name: str, dimensions: int | None = None) -> Stored:
        stored = self._tensors.get(name)
        if stored is None:
            raise CheckpointError(f"tensor {shown(name)} is missing")
        if dimensions is not None and len(stored.shape) != dimensions:
            raise CheckpointError(f"tensor {shown(name)} has the shape {shown(stored.shape)}")
        self._taken.add(name)
        return stored

    @staticmethod
    def _expect(
        stored: Stored, dtypes: str | Mapping[str, int] | tuple[str, ...], shape: tuple[int, ...]
    ) -> None:
        wanted = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        if stored.dtype not in wanted or stored.shape != shape:
            raise CheckpointError(
                f"tensor {shown(stored.name)} is {stored.dtype} {list(stored.shape)}, "
                f"not {' or '.join(wanted)} {list(shape)}"
            )


def read_bytes(stored: Stored) -> bytes:
    """Return a small tensor's bytes; CheckpointError when the file has become shorter."""
    try:
        with stored.path.open("rb") as file:
            file.seek(stored.offset)
            data = file.read(stored.size_bytes)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise CheckpointError(f"{stored.path} cannot be read: {why}") from error
    if len(data) != stored.size_bytes:
        raise CheckpointError(f"{stored.path} ends inside tensor {shown(stored.name)}")
    return data


def read_array(stored: Stored, form: str) -> npt.NDArray[np.int64]:
    """Return a small tensor's whole numbers."""
    return np.frombuffer(read_bytes(stored), form).astype(np.int64)
