"""What a run of bench.peers says of its figures: floors, void, exit codes; and the command's refusals."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import floors, machine, peers
from bench.conduct import Figure
from bench.paired import compare
from bench.peers_report import IK, LLAMA, Report
from bench.peers_text import markdown, report_text
from bench.results import write_section
from bench.sides.llama_cpp import context_parameters

LAYERS, HEAD = 106_168_320, 28_311_552
# The reference machine itself: its peaks and roof, and what llama.cpp reached there.
PEAKS = {1: {"avx2": 120e9, "avx512": None, "reference": 62e9}, 2: {"avx2": 240e9, "reference": 124e9}}
READ_S = {"1": 1 / 150, "2": 1 / 221}
THEIRS = {("decode", 0): 76.0, ("decode", 512): 44.0, ("decode", 2048): 27.0}
THEIRS |= {("prefill", 128): 191.0, ("prefill", 512): 176.0, ("prefill", 2048): 147.0}


def figure(kind: str, length: int, peer: str, theirs: float, ratio: float, threads: int = 2) -> Figure:
    values = [theirs * factor for factor in (0.99, 1.0, 1.0, 1.01)]
    ours = [ratio * value for value in values]
    return Figure(
        "decode" if kind == "decode" else "prefill",
        length,
        threads,
        peer,
        {"off": theirs},
        "off",
        ours,
        values,
        compare(ours, values, 1),
    )


def report(**changed: object) -> Report:
    """A run that meets every floor."""
    figures = [figure(kind, length, LLAMA, speed, 4.0) for (kind, length), speed in THEIRS.items()]
    figures += [figure("prefill", length, IK, 380.0, 2.0) for length in floors.PREFILL_PROMPTS]
    roofs = [
        {
            "kind": "decode",
            "length": 0,
            "threads": threads,
            "speeds": [speed],
            "read_bytes": 96_400_000,
            "read_s": READ_S,
            "read_s_best": READ_S,
        }
        for threads, speed in ((1, 135.0), (2, 190.0))
    ]
    base = Report(
        taken="today",
        command="python -m bench.peers",
        quick=True,
        seed=1,
        wall_s=100.0,
        machine=machine.describe(),
        load_before=(0.0, 0.0, 0.0),
        load_after=(1.0, 1.0, 1.0),
        busy_before=0.01,
        steal_share=0.0,
        sides={
            "assay": {
                "isa": "avx2",
                "library_sha256": "0" * 64,
                "macs": {"layers": LAYERS, "head": HEAD},
            },
            LLAMA: {"version": "1", "features": "AVX2 = 1"},
        },
        missing={},
        broken={},
        figures=tuple(figures),
        roofs=tuple(roofs),
        peaks=PEAKS,
        control=compare([1.01, 0.99, 1.0, 1.0], [1.0] * 4, 1),
        idle={"assay": 0.0},
    )
    return dataclasses.replace(base, **changed)


def test_a_run_that_meets_every_floor_exits_0() -> None:
    found = report()
    assert found.void == ()
    assert [each.name for each in found.verdicts if not each.met] == []
    assert found.exit_code == 0
    written = found.as_json()
    assert written["decode"] == {"0": pytest.approx(4), "512": pytest.approx(4), "2048": pytest.approx(4)}
    assert set(written["prefill"]) == {"128", "512", "2048"}
    assert written["roof"] == pytest.approx(135 / 150)
    assert written["roof_2"] == pytest.approx(190 / 221)
    assert json.loads(json.dumps(written, allow_nan=False))["exit_code"] == 0


@pytest.mark.parametrize(
    ("kind", "length", "floor"),
    [
        ("decode", 0, 2.2),
        ("decode", 512, 2.5),
        ("decode", 2048, 2.5),
        ("prefill", 128, 3.5),
        ("prefill", 512, 3.5),
        ("prefill", 2048, 3.0),
    ],
)
def test_each_floor_is_the_one_that_was_asked(kind: str, length: int, floor: float) -> None:
    for ratio, code in ((floor * 1.001, 0), (floor * 0.999, 5)):
        figures = [
            figure(kind, length, LLAMA, THEIRS[kind, length], ratio)
            if (each.kind, each.length, each.peer) == (kind, length, LLAMA)
            else each
            for each in report().figures
        ]
        assert report(figures=tuple(figures)).exit_code == code


def test_ik_and_one_thread_have_their_floors() -> None:
    slow = [each for each in report().figures if each.peer != IK]
    slow += [figure("prefill", length, IK, 380.0, 1.49) for length in floors.PREFILL_PROMPTS]
    assert report(figures=tuple(slow)).exit_code == 5
    roofs = [{**roof, "speeds": [126.0 if roof["threads"] == 1 else 190.0]} for roof in report().roofs]
    assert [each.name for each in report(roofs=tuple(roofs)).verdicts if not each.met] == [
        "decode at 0 over the reading roof, 1 thread"
    ]


def test_what_was_not_measured_does_not_pass() -> None:
    failed = Figure("decode", 2048, 2, LLAMA, error="it crashed")
    figures = [each for each in report().figures if (each.kind, each.length) != ("decode", 2048)]
    found = report(figures=(*figures, failed))
    assert found.exit_code == 4
    assert found.as_json()["decode"]["2048"] is None
    assert "not measured: it crashed" not in report_text(found)
    assert "FAIL  decode at 2048 over llama.cpp: not measured" in report_text(found)


@pytest.mark.parametrize(("kind", "length"), [("decode", 0), ("prefill", 128), ("prefill", 2048)])
def test_a_handicapped_peer_voids_the_run(kind: str, length: int) -> None:
    figures = [
        figure(kind, length, LLAMA, 0.8 * THEIRS[kind, length], 4.0)
        if (each.kind, each.length, each.peer) == (kind, length, LLAMA)
        else each
        for each in report().figures
    ]
    found = report(figures=tuple(figures))
    assert found.exit_code == 5
    assert [f"{kind} of {length}" in reason for reason in found.void] == [True]
    assert "VOID: llama.cpp reached" in report_text(found)


def test_the_bar_follows_the_slower_resource() -> None:
    base = floors.peer_decode_bar(2, 221.0, 124e9, LAYERS + HEAD)
    assert base == pytest.approx((1 - floors.PEER_TOLERANCE) * 76, rel=0.01)
    assert floors.peer_decode_bar(2, 442.0, 124e9, LAYERS + HEAD) == pytest.approx(base, rel=0.01)
    assert floors.peer_decode_bar(2, 442.0, 248e9, LAYERS + HEAD) == pytest.approx(2 * base, rel=0.01)
    assert floors.peer_prefill_bar(2, 333, 124e9, LAYERS) is None


def test_a_control_with_an_effect_or_a_spinning_side_voids_the_run() -> None:
    effect = compare([1.2, 1.21, 1.19, 1.2], [1.0] * 4, 1)
    assert "A/A" in report(control=effect).void[0]
    assert "llama.cpp used 60% of a core" in report(idle={LLAMA: 0.6}).void[0]


def test_a_figure_above_the_roof_is_refused() -> None:
    roofs = [{**roof, "speeds": [300.0]} for roof in report().roofs]
    assert "impossible" in report(roofs=tuple(roofs)).void[0]


def test_results_keep_the_other_sections(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    write_section("fidelity", "## F\n\nkept", path)
    write_section("peers", markdown(report()), path)
    write_section("peers", markdown(report(taken="later")), path)
    text = path.read_text()
    assert text.count("## Against") == 1
    assert "later" in text
    assert "today" not in text
    assert text.index("## Against") < text.index("## F")
    assert "kept" in text


def test_a_busy_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "busy_share", lambda: 0.4)
    assert peers.main(["--model", "/nonexistent"]) == 3
    assert "--busy" in capsys.readouterr().err


def defaults(**changed: int) -> bytes:
    """Context parameters as llama.cpp lays them out today."""
    values: Mapping[str, Any] = {"begin": 512, "threads": 4, "other_threads": 4, "rope": -1, **changed}
    begin = struct.pack("<4I", values["begin"], 2048, 512, 1)
    middle = struct.pack("<3I2iI", 0, 0, 1, values["threads"], values["other_threads"], 0)
    return (begin + middle + struct.pack("<4i3f", values["rope"], -1, -1, -1, 0.0, 0.0, -1.0)).ljust(
        512, b"\0"
    )


def test_parameters_are_written_where_the_defaults_show_them() -> None:
    filled = context_parameters(defaults(), 2304, 2, flash_attention=1)
    assert struct.unpack_from("<3I", filled) == (2304, 2048, 512)
    assert struct.unpack_from("<2i", filled, 28) == (2, 2)
    assert struct.unpack_from("<4i", filled, 40) == (-1, -1, -1, 1)
    assert len(filled) == 512


@pytest.mark.parametrize("changed", [{"begin": 4096}, {"threads": 3}, {"rope": 0}])
def test_another_layout_is_refused(changed: dict[str, int]) -> None:
    with pytest.raises(RuntimeError, match="another layout"):
        context_parameters(defaults(**changed), 2304, 2, flash_attention=1)


@pytest.mark.slow
def test_the_command_measures_both_peers_and_writes_json(
    model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--quick",
        "--busy",
        "--threads",
        "1",
        "--contexts",
        "0",
        "--prompts",
        "--pairs",
        "2",
        "--tokens",
        "4",
    ]
    code = peers.main([*words, "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == found["exit_code"]
    assert code in (4, 5)  # the other floors were not measured, and a busy machine may void the run
    assert {each["peer"] for each in found["figures"]} == {LLAMA, IK}
    for each in found["figures"]:
        assert each["error"] is None
        assert len(each["ours"]) == len(each["theirs"]) == 2
        assert set(each["tried"]) == {"off", "on"}
    assert "AVX2 = 1" in found["sides"][LLAMA]["features"]
    assert found["sides"]["assay"]["macs"] == {"layers": LAYERS, "head": HEAD}
    assert found["decode_1"]["0"] > 0
