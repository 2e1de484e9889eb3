"""The two models of `bench.short_model` bound what guessing gains and costs: one knows the other, or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from bench.short_model import main
from server.engine import Chunk, Engine
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen3, TinyQwen35

TOKENS = (3, 1, 4, 1, 5, 9, 2, 6)


def logits(path: Path) -> npt.NDArray[np.float32]:
    with Engine(path, threads=1, slots=1) as engine:
        return engine.step([Chunk(0, 0, TOKENS, "all")]).logits.copy()


@pytest.mark.parametrize(
    "model",
    [TinyModel(layers=3), TinyQwen3(layers=3, kind=GGMLQuantizationType.Q4_0)],
    ids=["llama", "qwen3"],
)
def test_the_short_model_says_what_the_idle_one_says_and_the_whole_one_something_else(
    model: TinyModel, tmp_path: Path
) -> None:
    whole, short, idle = (tmp_path / f"{name}.gguf" for name in ("whole", "short", "idle"))
    model.write(whole)
    assert main(["2", str(short), "--model", str(whole)]) == 0
    assert main(["2", str(idle), "--idle", "--model", str(whole)]) == 0
    assert (logits(short) == logits(idle)).all()
    assert np.abs(logits(short) - logits(whole)).max() > 1

    def told(path: Path) -> dict[str, object]:
        fields = GGUFReader(path).fields
        return {key: field.contents() for key, field in fields.items() if not key.startswith("GGUF.")}

    layers = f"{model.architecture}.block_count"
    assert told(idle) == told(whole)
    assert told(short) == {**told(whole), layers: 2}
    assert idle.stat().st_size == whole.stat().st_size > short.stat().st_size


def test_layers_that_predict_further_tokens_are_not_taken_for_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TinyQwen35().write(tmp_path / "whole.gguf")
    assert main(["2", str(tmp_path / "short.gguf"), "--model", str(tmp_path / "whole.gguf")]) == 2
    assert "predict further tokens" in capsys.readouterr().err


def test_no_layers_less_are_no_short_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TinyModel().write(tmp_path / "whole.gguf")
    for layers in ("2", "3"):
        assert main([layers, str(tmp_path / "short.gguf"), "--model", str(tmp_path / "whole.gguf")]) == 2
        assert "the model has 2" in capsys.readouterr().err
    assert not (tmp_path / "short.gguf").exists()
