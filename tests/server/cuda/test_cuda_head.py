"""An output head of floats as Q8_0 on the device: what a file with such a head gives and takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from server.engine import Engine, EngineArgumentError
from server.gpu_speed import Measure
from server.plan import Holding, plan
from tests.server.engine.headed import FLOATS, HeadedModel
from tests.server.engine.test_engine_head import HEADS, logits, written
from tests.server.engine.tiny import TinyModel

pytestmark = pytest.mark.slow

DEVICE = "cuda-emulated"


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_logits_are_those_of_a_file_with_a_q8_0_head(kind: Kind, tmp_path: Path) -> None:
    stored, file = (written(tmp_path, HeadedModel(head=kind, quantised=each)) for each in (False, True))
    expected = logits(file, device=DEVICE)
    assert logits(stored, device=DEVICE, head="q8_0") == expected
    assert logits(stored, device=DEVICE) != expected


def test_the_plan_is_what_is_allocated(tmp_path: Path, emulated: Path) -> None:
    path = written(tmp_path, HeadedModel())
    device = Measure(emulated)
    before = device.device().free_bytes
    taken = {}
    for head in HEADS:
        memory, _ = plan(path, Holding(context=300, head=head), 1 << 30, [])
        with Engine(path, slots=1, context=300, device=DEVICE, head=head) as engine:
            assert engine.head == head
            taken[head] = before - device.device().free_bytes
        parts = memory.weight_bytes + memory.kv_bytes + memory.state_bytes + memory.workspace_bytes
        assert parts == taken[head]
    assert taken["q8_0"] < taken["stored"]


def test_a_head_that_cannot_be_quantised_is_refused(tmp_path: Path, emulated: Path) -> None:
    path = tmp_path / "model.gguf"
    TinyModel().write(path)
    with pytest.raises(EngineArgumentError, match="its embedding table is its head too"):
        Engine(path, slots=1, device=DEVICE, head="q8_0")
