"""What is planned is what a device's engine allocates; what does not fit is refused and nothing loaded."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from server import abi, inspection, loading
from server.build_cuda import ensure_built_emulated
from server.engine import Chunk, EngineArgumentError, EngineError
from server.engine import Engine as AnyEngine
from server.errors import StartError
from server.gpu_speed import Measure
from server.guesser import Speculation, find_draft
from server.loading import ModelOptions, load
from server.metrics import Metrics
from server.plan import Holding, Memory, plan
from server.random_model import RandomModel
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen3, TinyQwen35

pytestmark = pytest.mark.slow

Engine = partial(AnyEngine, device="cuda-emulated")
GIB = 1 << 30


def planned(path: Path, holding: Holding, memory_bytes: int = 24 * GIB) -> Memory:
    return plan(path, holding, memory_bytes, [])[0]


def opened(path: Path, holding: Holding, memory_bytes: int = 0) -> AnyEngine:
    return Engine(
        path,
        threads=1,
        slots=holding.slots + holding.kept_slots,
        context=holding.context,
        kv=holding.kv,
        kept_slots=holding.kept_slots,
        kept_positions=holding.kept_tokens,
        memory_bytes=memory_bytes,
    )


HOLDINGS = {
    "one slot": Holding(context=300),
    "many slots": Holding(slots=40, context=129),
    "int8": Holding(slots=3, context=512, kv="int8"),
    "q4": Holding(slots=3, context=512, kv="q4"),
    "kept ones": Holding(slots=2, context=500, kept_slots=7, kept_tokens=700),
    "kept ones whole": Holding(slots=2, context=100, kept_slots=3, kept_tokens=10_000),
}


@pytest.mark.parametrize("name", HOLDINGS)
def test_the_plan_is_what_is_allocated(name: str, tiny_path: Path, emulated: Path) -> None:
    holding = HOLDINGS[name]
    device = Measure(emulated)
    before = device.device().free_bytes
    with opened(tiny_path, holding) as engine:
        allocated = before - device.device().free_bytes
        memory = planned(tiny_path, holding)
        assert (
            memory.weight_bytes + memory.kv_bytes + memory.state_bytes + memory.workspace_bytes == allocated
        )
        assert (memory.slots, memory.context) == (engine.slots, engine.context)
        assert memory.kv_bytes_per_position == engine.kv_bytes_per_position
        assert memory.prefill_rows == engine.prefill_chunk
    assert device.device().free_bytes == before


@pytest.mark.parametrize("model", [TinyQwen3(), TinyQwen35()], ids=lambda model: type(model).__name__)
def test_a_model_with_state_takes_what_is_planned(model: TinyModel, tmp_path: Path, emulated: Path) -> None:
    path = tmp_path / "model.gguf"
    model.write(path)
    holding = Holding(slots=3, context=300, kept_slots=2, kept_tokens=200)
    device = Measure(emulated)
    before = device.device().free_bytes
    with opened(path, holding):
        memory = planned(path, holding)
        parts = memory.weight_bytes + memory.kv_bytes + memory.state_bytes + memory.workspace_bytes
        assert parts == before - device.device().free_bytes
    assert memory.state_bytes == memory.slots * memory.state_bytes_per_slot
    assert (memory.state_bytes > 0) == isinstance(model, TinyQwen35)


def test_what_fits_at_most_is_loaded_and_one_more_is_refused(tiny_path: Path) -> None:
    holding = Holding(slots=8, context=400, kept_slots=2, kept_tokens=500)
    most = planned(tiny_path, holding).total_bytes
    memory = planned(tiny_path, holding, most)
    assert (memory.largest_context, memory.largest_slots) == (400, 8)
    assert planned(tiny_path, replace(holding, context=401)).total_bytes > most
    assert planned(tiny_path, replace(holding, slots=9)).total_bytes > most
    assert planned(tiny_path, holding, most - 1).largest_slots == 7
    assert planned(tiny_path, holding, GIB // 4).largest_context == 0
    with opened(tiny_path, holding, most) as engine:
        assert engine.length(9) == 0
    told: list[tuple[int, int]] = []
    with pytest.raises(
        EngineError, match=r"it takes [\d.]+ GiB .*weights .*keys and values .*more than the .* allowed"
    ):
        Engine(
            tiny_path,
            slots=10,
            context=400,
            kept_slots=2,
            kept_positions=500,
            memory_bytes=most - 1,
            progress=lambda done, total: told.append((done, total)),
        )
    assert told == []


def test_a_server_that_does_not_fit_ends_with_the_numbers_and_what_to_type(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(inspection.DEVICES, "cuda", ensure_built_emulated)
    monkeypatch.setattr(abi.Library, "open", None)  # it would be called in vain
    options = ModelOptions(tiny_path, "tiny", device="cuda", memory_bytes=500 << 20)
    with pytest.raises(StartError) as caught:
        load(options, Metrics())
    assert caught.value.exit_code == 3
    assert re.search(r"it takes 0\.\d\d GiB .* more than the 0\.49 GiB allowed", caught.value.why)
    assert f"assay serve '{tiny_path}' --plan" in caught.value.next_command


def test_as_many_ended_answers_are_kept_as_there_is_room_for(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(inspection.DEVICES, "cuda", ensure_built_emulated)
    holding = Holding(slots=8, kept_tokens=16384)

    def kept(memory_bytes: int, guesser: str | None = None) -> int:
        speculation = None if guesser is None else Speculation(guesser)
        options = ModelOptions(
            tiny_path, "tiny", device="cuda", memory_bytes=memory_bytes, speculation=speculation
        )
        return loading._kept_slots(options, tiny_path, find_draft(speculation))

    five = planned(tiny_path, replace(holding, kept_slots=5)).total_bytes
    assert (kept(0), kept(five), kept(five - 1), kept(1)) == (24, 5, 4, 0)
    draft = planned(tiny_path, Holding(slots=8))
    beside = five + draft.total_bytes - draft.driver_bytes
    assert (kept(beside, str(tiny_path)), kept(beside - 1, str(tiny_path)), kept(five, "ngram")) == (5, 4, 5)


def test_a_small_model_that_guesses_has_to_fit_too_before_anything_is_loaded(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(inspection.DEVICES, "cuda", ensure_built_emulated)
    model = planned(tiny_path, Holding(slots=2, context=256))
    both = 2 * model.total_bytes - model.driver_bytes
    for kept_slots in (0, None):
        options = ModelOptions(
            *(tiny_path, "tiny"),
            slots=2,
            context=256,
            device="cuda",
            kept_slots=kept_slots,
            memory_bytes=both,
            speculation=Speculation(str(tiny_path)),
        )
        draft = find_draft(options.speculation)
        assert loading._kept_slots(options, tiny_path, draft) == 0
        with pytest.raises(StartError, match="which guesses for it, do not fit into memory") as caught:
            load(replace(options, memory_bytes=both - 1), Metrics())
        assert caught.value.exit_code == 3
        numbers = re.findall(r"[\d.]+ GiB (?:and|of device memory|are allowed)", caught.value.why)
        assert len(numbers) == 3
        assert f"--speculate '{tiny_path}' --plan" in caught.value.next_command


def test_more_than_the_device_has_is_refused_with_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    RandomModel(heads=64, kv_heads=64, head_dim=128, width=64, context=1 << 20).write(path)
    with pytest.raises(EngineError, match=r"it takes \d+\.\d\d GiB of device memory .*64\.00 GiB are free"):
        Engine(path, slots=64, context=1 << 20)


def test_kept_slots_have_the_memory_that_was_asked_for_and_no_more(tiny_path: Path) -> None:
    holding = Holding(slots=1, context=256, kept_slots=3, kept_tokens=128)
    with opened(tiny_path, holding) as engine:  # two blocks, and four for three kept ones
        for slot in range(3):
            engine.step([Chunk(slot, 0, [1] * 256, "none")])
        expected = engine.step([Chunk(0, 250, [2, 3], "last")]).logits.tobytes()
        with pytest.raises(EngineError, match="6 blocks of 128 positions 0 are free, 2 are wanted"):
            engine.step([Chunk(0, 250, [5], "none"), Chunk(3, 0, [1] * 129, "none")])
        assert (engine.length(0), engine.length(3)) == (252, 0)  # nothing was written
        engine.fork(1, 1, 0)
        engine.step([Chunk(3, 0, [1] * 129, "none")])
        assert engine.step([Chunk(0, 250, [2, 3], "last")]).logits.tobytes() == expected


@pytest.mark.parametrize(("kept", "tokens"), [(4, 0), (-1, 0), (1, -1)])
def test_kept_slots_that_cannot_be_are_refused(kept: int, tokens: int, tiny_path: Path) -> None:
    with pytest.raises(EngineArgumentError, match="kept_"):
        Engine(tiny_path, slots=4, kept_slots=kept, kept_positions=tokens)


def test_loading_tells_how_far_it_is_and_gives_back_the_pages_it_has_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    RandomModel(layers=6, width=512, ffn=2048, heads=8, kv_heads=8, head_dim=64, vocabulary=320).write(path)
    told: list[tuple[int, int]] = []
    resident: list[int] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        resident.append(resident_bytes(path))

    Engine(path, slots=1, context=64, progress=progress).close()
    size = path.stat().st_size
    assert told[0][0] == 0
    assert told == sorted(told)
    assert {total for _, total in told} == {told[-1][0]}
    assert size - 65536 < told[-1][0] < size
    assert max(resident) < size / 4


def resident_bytes(path: Path) -> int:
    """How much of a file's mapping this process holds."""
    text = Path("/proc/self/smaps").read_text()
    found = re.findall(rf"{re.escape(str(path))}\n.*?Rss: +(\d+) kB", text, re.DOTALL)
    assert found, "the file is mapped while it is loaded"
    return sum(map(int, found)) * 1024
