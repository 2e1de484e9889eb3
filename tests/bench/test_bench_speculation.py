"""Speculation is measured as a mode of its own, and only where it says the same bytes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.errors import PrerequisiteError, VerificationError
from bench import machine, speculation
from bench.results import SECTIONS
from bench.speculation import Workload, measure_one, workloads
from server.engine import Chunk, StepResult
from server.scheduler import Limits
from server.speculation import NgramGuesser
from tests.server.http.running import Toy, toy_server


def port(toy: Toy) -> int:
    return int(toy.url.rpartition(":")[2])


def slow_down(toy: Toy) -> None:
    """Let its tokens be far enough apart to arrive one by one."""
    step = toy.engine.step

    def slowly(chunks: Sequence[Chunk]) -> StepResult:
        time.sleep(0.01)
        return step(chunks)

    toy.engine.step = slowly  # the scheduler looks it up at every step


def test_two_modes_of_one_model_are_compared_and_their_guesses_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speculation, "NAME", "toy")
    asked = Workload("echo", "ab" * 20)
    with toy_server() as plain, toy_server(limits=Limits(guesses=3), guesser=NgramGuesser()) as guessing:
        for each in (plain, guessing):
            slow_down(each)
        result = measure_one(asked, port(plain), port(guessing), 12, 4, 1)
        ours, theirs = len(guessing.engine.batches), len(plain.engine.batches)
    assert result.ratio.pairs == 4
    assert result.drafted >= result.accepted >= 0
    assert result.plain > 0 < result.guessing
    assert ours <= theirs


def test_another_text_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation, "NAME", "toy")
    monkeypatch.setattr(speculation, "said", lambda port, asked: str(port))
    with pytest.raises(VerificationError, match="another one"):
        measure_one(Workload("echo", "ab"), 1, 2, 4, 1, 1)


def test_a_pinned_model_can_guess_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(options: argparse.Namespace, *_: object) -> None:
        asked.append(options.speculate)
        raise PrerequisiteError("nothing is measured", "", "")

    monkeypatch.setattr(speculation, "pins", lambda: {"small": None})
    monkeypatch.setattr(speculation, "verify", lambda name: Path(f"/models/{name}.gguf"))
    monkeypatch.setattr(speculation, "measure", measured)
    for guesser in ("small", "small.gguf", "ngram"):
        assert speculation.main(["--busy", "--speculate", guesser]) == 3
    assert asked == ["/models/small.gguf", "small.gguf", "ngram"]


@pytest.mark.parametrize(("guesser", "section"), [("ngram", ""), ("small.gguf", "-model")])
def test_each_kind_of_guesser_has_a_section_of_its_own(
    guesser: str, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = speculation.Report(
        *(
            "2026-11-30",
            "python -m bench.speculation",
            machine.describe(),
            0.5,
            "large.gguf",
            guesser,
            4,
            128,
            (),
        )
    )
    written: dict[str, str] = {}
    monkeypatch.setattr(speculation, "measure", lambda *_: report)
    monkeypatch.setattr(speculation, "write_section", written.__setitem__)
    assert speculation.main(["--busy", "--write", "--model", "large.gguf", "--speculate", guesser]) == 0
    ((name, text),) = written.items()
    assert (name, name in SECTIONS) == (f"speculation{section}", True)
    assert f"Model large.gguf, guesser {guesser}, " in text


@pytest.mark.slow
def test_the_command_measures_the_shipped_model(model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--busy", "--json", "--pairs", "1", "--tokens", "24", "--model", str(model_path)]
    assert speculation.main(words) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [each["workload"] for each in report["results"]] == [each.name for each in workloads()]
    copied = report["results"][0]
    assert copied["accepted"] > copied["drafted"] / 2, "a text that comes again is guessed well"
