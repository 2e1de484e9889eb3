"""`bench.depth` and `bench.needle`: the real commands at a small size, and what their verdicts depend on."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigurationError
from assay.paths import ROOT
from bench import depth, floors, needle
from bench.divergence import log_softmax, top_ids
from bench.sides.protocol import Side


def run(*arguments: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", *arguments, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return done.returncode, json.loads(lines[-1])


@pytest.mark.slow
def test_a_hybrid_model_is_exact_at_depth_with_every_form_of_keys_and_values() -> None:
    """1,300 positions cross ten blocks of keys and twenty chunks of the gated delta rule."""
    code, told = run("bench.depth", "--positions", "1300")
    assert (code, told["met"], told["decoded_alike"]) == (0, True, True)
    results = told["results"]
    assert isinstance(results, list)
    assert {each["kv"] for each in results} == set(floors.DEPTH_KL)
    assert {(each["first"], each["end"]) for each in results} == {(0, 1024), (1024, 1300)}
    divergence = {each["kv"]: each["kl"] for each in results if each["first"] == 1024}
    assert 0 < divergence["f16"] < divergence["int8"]


@pytest.mark.slow
def test_a_number_is_found_in_a_prompt_with_every_form_of_keys_and_values() -> None:
    code, told = run("bench.needle", "--lengths", "256")
    assert (code, told["met"]) == (0, True)
    results = told["results"]
    assert isinstance(results, list)
    assert {each["kv"] for each in results} == set(floors.NEEDLE_LOSS)
    assert all(each["log_probability"] > -1.0 for each in results)  # chance is -2.3
    assert sum(each["found"] for each in results if each["kv"] == "f16") >= 2


def test_an_error_that_grows_with_depth_fails() -> None:
    random = np.random.default_rng(1)
    exact = random.standard_normal((4096, 256)) * 3
    ids = top_ids(log_softmax(exact), depth.IDS)
    chosen = np.take_along_axis(log_softmax(exact), ids, -1)
    assert depth.held(depth.judged("f16", "plain", exact, chosen, ids), decoded_alike=True)
    assert not depth.held(depth.judged("f16", "plain", exact, chosen, ids), decoded_alike=False)
    noise = random.standard_normal(exact.shape) * np.linspace(0, 0.05, len(exact))[:, None]
    rows = depth.judged("f16", "plain", exact + noise, chosen, ids)
    assert [(row.first, row.end) for row in rows] == [(0, 1024), (1024, 4096)]
    assert rows[0].kl < rows[1].kl
    assert not depth.held(rows, decoded_alike=True)


class Speller:
    """Stands for the side: a token for each letter."""

    def ask(self, _: str, __: float, *, text: str) -> dict[str, list[int]]:
        return {"tokens": [ord(letter) for letter in text]}


@given(st.integers(0, 400))
def test_a_prompt_has_the_tokens_that_were_asked_for_or_is_refused(length: int) -> None:
    side = cast(Side, Speller())
    try:
        made = list(needle.prompts(side, length))
    except ConfigurationError as error:
        least = int(error.next.split()[-1])
        assert length < least
        assert len(list(needle.prompts(side, least))) == len(needle.DEPTHS)
        return
    for _, prompt, wanted in made:
        assert len(prompt) + len(wanted) + 16 == length


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("depth", "--positions", "0"), "'0' is no whole number from 64 to 32768"),
        (("depth", "--positions", "1000000"), "from 64 to 32768"),
        (("needle", "--lengths", "-5"), "'-5' is no whole number from 64"),
        (("needle", "--lengths", "0"), "'0' is no whole number from 64"),
        (("speculation", "--pairs", "0"), "'0' is no whole number from 1"),
        (("speculation", "--tokens", "1"), "'1' is no whole number from 2"),
        (("serving", "--tokens", "x"), "'x' is no whole number from 2"),
        (("engine", "--repeats", "0"), "'0' is no whole number from 1"),
        (("memory", "--requests", "٣"), "is no whole number from 0"),
    ],
)
def test_a_number_that_nothing_can_be_measured_of_is_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = importlib.import_module(f"bench.{words[0]}")
    with pytest.raises(SystemExit) as ended:
        command.main(list(words[1:]))
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_form_that_loses_the_number_fails() -> None:
    halves = [needle.Needle("f16", 1024, at, -0.3, True) for at in needle.DEPTHS]
    near = [replace(each, kv="int8", log_probability=-0.32) for each in halves]
    lost = [replace(each, kv="int8", log_probability=-2.3, found=False) for each in halves]
    assert needle.held([*halves, *near])
    assert not needle.held([*halves, *lost])
