"""`--plan` by the real command: memory and work are told, nothing is loaded, what cannot be is refused."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import cards, planning
from server.__main__ import main
from server.plan import Cost, Holding, Part, Step, plan
from server.random_model import RandomModel

MODEL = RandomModel(
    layers=3, width=256, ffn=512, heads=8, kv_heads=2, head_dim=64, vocabulary=320, context=4096
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "model.gguf"
    MODEL.write(path)
    return path


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server", *words], capture_output=True, text=True, check=False, timeout=300
    )


def planned(model: Path, *words: str) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert main([str(model), "--plan", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(told.getvalue())
    return found


def test_the_parts_make_the_whole_and_the_limit_decides_what_fits(model: Path) -> None:
    found = planned(model, "--slots", "3", "--context", "1000", "--kept-slots", "2", "--kept-tokens", "256")
    memory = found["memory"]
    parts = ("weight_bytes", "kv_bytes", "state_bytes", "workspace_bytes", "graph_bytes", "driver_bytes")
    assert sum(memory[part] for part in parts) == memory["total_bytes"]
    # Three slots of eight blocks, and four for the two kept ones; tables of five.
    block = memory["kv_bytes_per_position"] * 128
    assert memory["kv_bytes"] == (3 * 8 + 2 + 2) * block + 5 * 8 * 4
    assert memory["kv_bytes_per_position"] == 2 * 2 * 64 * 2 * MODEL.layers
    assert found["fits"]
    assert found["limit_bytes"] == 24 << 30
    assert not planned(model, "--vram", "700MB")["fits"]


def test_a_step_reads_the_weights_once_and_multiplies_them_by_every_token(model: Path) -> None:
    parameters = MODEL.matrix_parameters
    head = MODEL.width * MODEL.vocabulary
    weights = parameters // 32 * 20 + head // 32 * 34
    _, (one, eight, prompt, deep) = plan(
        model,
        Holding(context=4096),
        0,
        [Step(1, 1, 0, 1), Step(8, 1, 0, 8), Step(1, 512, 0, 0), Step(1, 1, 4000, 1)],
    )
    assert one.products.bytes == eight.products.bytes == weights
    assert prompt.products.bytes == parameters // 32 * 20
    assert one.products.int8_operations == 0
    # 66 instructions of a block of a row, and more where it is refined: everywhere before the head.
    least = 2 * 66 * (parameters + head) // 32
    assert least + 2 * 24 * head // 32 < one.products.vector_operations < least * 90 / 66
    assert 2 * parameters * 512 < prompt.products.int8_operations <= 2 * 2 * parameters * 512
    assert deep.attention.bytes - one.attention.bytes == 4000 * 2 * 2 * 64 * 2 * MODEL.layers
    assert one.delta == Part()
    assert deep.total == deep.products + deep.attention + deep.delta + deep.between


def test_a_prompt_is_the_sum_of_its_passes_and_every_rate_is_below_the_published_one(model: Path) -> None:
    works = {work["name"]: work for work in planned(model, "--context", "4096", "--slots", "2")["work"]}
    assert list(works) == ["decode at 0", "decode at 4,095", "decode of 2 at 4,095", "prompt of 4,096"]
    _, passes = plan(
        model,
        Holding(slots=2, context=4096),
        0,
        [Step(1, 512, at, int(at == 3584)) for at in range(0, 4096, 512)],
    )
    for part in ("products", "attention", "between"):
        total = sum(getattr(each, part).bytes for each in passes)
        assert works["prompt of 4,096"][part]["bytes"] == total
    for work in works.values():
        assert 0 < work["tokens_per_s_at_assumed"] < work["tokens_per_s_at_published"]
        assert work["tokens_per_s_at_published"] <= 936e9 * work["tokens"] / work["products"]["bytes"]


def test_the_text_tells_the_same(model: Path) -> None:
    done = command(
        str(model), "--plan", "--vram", "1GiB", "--kv", "int8", "--slots", "1", "--kept-slots", "0"
    )
    assert done.returncode == 0
    found = planned(model, "--vram", "1GiB", "--kv", "int8", "--slots", "1", "--kept-slots", "0")
    assert "memory on a CUDA device of 1.00 GiB" in done.stdout
    assert f"{found['memory']['largest_slots']:,}  with 4,096 positions each" in done.stdout
    assert "published figures of one NVIDIA GeForce RTX 3090" in done.stdout
    # However fast a card is for a small model: every figure stands by itself.
    rows = [
        re.split(r"(?<=[0-9]) +(?=[0-9])", line) for line in done.stdout.split("assumed\n")[1].splitlines()
    ]
    assert [len(row) for row in rows] == [len(planning.COLUMNS) + 1] * len(found["work"])
    for row, work in zip(rows, found["work"], strict=True):
        assert row[0] == f"  {work['name']}"
        assert row[-1] == f"{work['tokens_per_s_at_assumed']:,.1f}"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--plan", "--card", "rtx-1"), 2, "there is no card rtx-1"),
        (("--plan", "--vram", "24 lightyears"), 2, "is no size, such as 24GiB"),
        (("--vram", "24GiB"), 2, "add --device cuda, or --plan"),
        (("--plan", "--vram", "24"), 2, "'24' is no size, such as 24GiB"),
        (("--plan", "--vram", "0GiB"), 2, "'0GiB' is no memory at all"),
        (("--plan", "--vram", "17179869184GiB"), 2, f"{2**64} is no 64-bit number"),
        (("--plan", "--context", "5000"), 2, "a context of 5000"),
        (("--plan", "--context", str(2**32 + 64)), 2, f"{2**32 + 64} is no 32-bit number"),
        (("--plan", "--slots", "1025"), 2, "1025 answers at once and 0 kept ones"),
        (("--plan", "--slots", "1001", "--kept-slots", "24"), 2, "1001 answers at once and 24 kept ones"),
        (("--plan", "--kept-tokens", "9" * 20), 2, f"{'9' * 20} is no 64-bit number"),
        (("--plan", "--draft-tokens", "4"), 2, "--speculate is not given"),
        (("--plan", "--speculate", "ngram", "--draft-tokens", "17"), 2, "a step proposes 1 to 16"),
        (("--plan", "--speculate", "absent.gguf"), 3, "absent.gguf cannot be read"),
        (("--card", "h100"), 2, "add --plan"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    words: tuple[str, ...], code: int, told: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(model), *words]) == code
    said = capsys.readouterr()
    assert told in said.err
    assert "next:" in said.err
    assert said.out == ""


def test_a_refusal_is_one_json_object_where_one_is_asked_for(model: Path) -> None:
    for words, code, why in (
        (("--vram", "24 lightyears"), 2, "argument --vram: '24 lightyears' is no size"),
        (("--speculate", "absent.gguf"), 3, "there is no such file"),
    ):
        done = command(str(model), "--plan", "--json", *words)
        found = json.loads(done.stdout)
        assert (done.returncode, found["exit_code"], found["status"]) == (code, code, "error")
        assert found["error"]["why"].startswith(why)
        assert found["error"]["next"].startswith("assay ")


def test_a_plan_that_is_interrupted_says_so(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "make", interrupted)
    assert main([str(model), "--plan", "--json"]) == 6
    said = capsys.readouterr()
    assert said.err.startswith("error: cancelled")
    assert json.loads(said.out)["exit_code"] == 6


def test_as_many_answers_at_once_as_there_are_slots_can_be_planned(model: Path) -> None:
    memory = planned(model, "--slots", "1024", "--context", "8")["memory"]
    assert (memory["slots"], memory["largest_slots"]) == (1024, 1024)


DRAFT = RandomModel(layers=1, width=64, ffn=96, heads=2, kv_heads=2, head_dim=32, vocabulary=320, context=700)
HELD = ("--slots", "3", "--context", "1000", "--kept-slots", "2", "--kept-tokens", "256")


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    DRAFT.write(path)
    return path


def test_a_small_model_that_guesses_is_planned_beside_the_model(model: Path, draft: Path) -> None:
    alone = planned(model, *HELD)
    assert alone["draft"] is None
    assert planned(model, *HELD, "--speculate", "ngram") == alone
    found = planned(model, *HELD, "--speculate", str(draft))
    memory = found["draft"]["memory"]
    parts = ("weight_bytes", "kv_bytes", "state_bytes", "workspace_bytes", "graph_bytes")
    assert sum(memory[part] for part in parts) == memory["total_bytes"]
    # Three slots, and of the model's 1,000 positions the 700 that this one has: six blocks, and their table.
    assert (memory["slots"], memory["context"]) == (3, 700)
    assert memory["kv_bytes"] == 3 * 6 * (128 * 2 * 2 * 32 * 2 + 4)
    together = alone["memory"]["total_bytes"] + memory["total_bytes"]
    assert (found["total_bytes"], found["memory"]["total_bytes"]) == (
        together,
        alone["memory"]["total_bytes"],
    )
    assert found["work"] == alone["work"]
    short = planned(model, "--slots", "1", "--context", "300", "--speculate", str(draft))
    assert short["draft"]["memory"]["context"] == 300


def test_both_models_fit_or_neither_does(model: Path, draft: Path) -> None:
    guessing = (*HELD, "--speculate", str(draft))
    needed = planned(model, *guessing)["total_bytes"]
    exactly, short = (planned(model, *guessing, "--vram", f"{needed - less}B") for less in (0, 1))
    assert (exactly["fits"], short["fits"]) == (True, False)
    assert (exactly["memory"]["largest_context"], exactly["memory"]["largest_slots"]) == (1000, 3)
    assert (short["memory"]["largest_context"], short["memory"]["largest_slots"]) == (999, 2)
    done = command(str(model), "--plan", *guessing, "--vram", f"{needed - 1}B")
    assert "draft.gguf, which guesses" in done.stdout
    assert done.stdout.count("DOES NOT FIT") == 1


def test_kept_answers_leave_the_small_model_its_room(model: Path, draft: Path) -> None:
    asked = ("--slots", "3", "--context", "1000", "--speculate", str(draft))
    five = planned(model, *asked, "--kept-slots", "5")["total_bytes"]
    assert [planned(model, *asked, "--vram", f"{five - less}B")["kept_slots"] for less in (0, 1)] == [5, 4]


@given(st.integers(0, 10**6), st.sampled_from(sorted(planning.UNITS)))
def test_a_size_is_its_number_of_units(number: int, unit: str) -> None:
    assert planning.size_bytes(f"{number}{unit}") == number * planning.UNITS[unit]
    assert planning.size_bytes(f"{number}.5GiB") == number * planning.UNITS["GiB"] + (1 << 29)


@given(st.text(max_size=12))
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        planning.size_bytes(f"{text}?")


def test_a_part_takes_as_long_as_its_slowest_unit_and_parts_follow_one_another() -> None:
    table, assumed = cards.read()
    card = table["rtx-3090"]
    read = Cost(products=Part(bytes=936 * 10**9))
    assert card.seconds(read, cards.Shares()) == pytest.approx(1)
    assert card.seconds(read, assumed) == pytest.approx(1 / assumed.bandwidth)
    both = Part(bytes=936 * 10**9, int8_operations=284 * 10**12, half_operations=71 * 10**12)
    assert card.seconds(Cost(products=both), cards.Shares()) == pytest.approx(
        2
    )  # one after the other on the matrix units
    assert card.seconds(Cost(products=both, attention=both), cards.Shares()) == pytest.approx(4)
    for each in table.values():
        assert (
            each.bytes_per_s
            < each.vector_operations_per_s
            < each.half_operations_per_s
            < each.int8_operations_per_s
        )
