"""Matrices in the forms of safetensors authors: every value of every row means what the quantiser meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from server.checkpoint import read
from server.checkpoint_forms import Source
from server.description import native_source
from tests.server.engine.rows import RefusedError, meaning, native_rows, read_rows
from tests.server.engine.tiny_checkpoint import QUANTISED, TinyCheckpoint

FORMS = ["F32", "F16", "BF16", *QUANTISED]


def sources(model: TinyCheckpoint, folder: Path, **how: int) -> dict[str, Source]:
    return {source.name: source for source in read(model.write(folder, **how)).tensors}


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_every_row_means_what_was_quantised(form: str, padding: int, tmp_path: Path) -> None:
    """Bit for bit, wherever the bytes lie in the file, and however many rows are read at once."""
    model = TinyCheckpoint(form)
    found, (_, meant) = sources(model, tmp_path, padding=padding), model.tensors()
    for module, name in {
        "model.layers.0.self_attn.q_proj": "blk.0.attn_q.weight",
        "model.layers.1.mlp.gate_proj": "blk.1.ffn_gate.weight",
        "model.layers.1.mlp.down_proj": "blk.1.ffn_down.weight",
    }.items():
        source, wanted = found[name], meant[module]
        assert (source.rows, source.columns) == wanted.shape
        whole = read_rows(source, 0, source.rows)
        np.testing.assert_array_equal(meaning(source, whole).view(np.uint32), wanted.view(np.uint32))
        for first, count in ((0, 1), (source.rows - 1, 1), (17, 16), (source.rows - 5, 5)):
            np.testing.assert_array_equal(read_rows(source, first, count), whole[first : first + count])


def test_rows_and_scales_may_lie_in_two_files(tmp_path: Path) -> None:
    model = TinyCheckpoint("pack-BF16")
    found, (_, meant) = sources(model, tmp_path, shards=3), model.tensors()
    source = found["blk.0.attn_v.weight"]
    assert source.scales is not None
    assert source.scales.path != source.values.path
    rows = read_rows(source, 0, source.rows)
    np.testing.assert_array_equal(meaning(source, rows), meant["model.layers.0.self_attn.v_proj"])


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("lie past the end", {"offset": 2**64 - 8}),
        ("lie past the end", {"scale_offset": 2**63}),
        ("its shape asks for", {"size": 64}),
        ("its shape asks for", {"scale_size": 0}),
        ("its shape asks for", {"rows": 65}),
        ("no multiple of the block", {"columns": 64}),
        ("larger than can be addressed", {"columns": 2**62, "rows": 4}),
        ("larger than can be addressed", {"rows": 2**31}),
        ("a dimension of zero", {"rows": 0}),
        ("cannot be stored", {"type": 0}),
        ("is not supported", {"type": 999}),
        ("is stored as 4", {"storage": 4}),
        ("no path", {"scale_path": None}),
        ("No such file", {"path": b"nowhere.safetensors"}),
        ("the scale of its scales is", {"factor": float("nan")}),
        ("the scale of its scales is", {"factor": 0.0}),
        ("without a name", {"name": b""}),
    ],
)
def test_a_false_description_is_refused_before_a_byte_is_read(
    why: str, change: dict[str, object], tmp_path: Path
) -> None:
    source = sources(TinyCheckpoint("pack-F16"), tmp_path)["blk.0.attn_k.weight"]
    native = native_source(source)
    for field, value in change.items():
        setattr(native, field, value)
    with pytest.raises(RefusedError, match=why):
        native_rows(native, 0, 1, 66)
