"""Sides as processes: answers, faults that stay data, and idle ones that are watched."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.conduct import Conduct, Shape
from bench.sides.protocol import Side, SideError, token_ids

Make = Callable[[str], Side]
SHAPE = Shape("decode", 0, 1, 10, 4)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Side] = []

    def start(name: str) -> Side:
        side = Side(name, [sys.executable, "-m", "tests.bench.side_of_faults"], tmp_path / f"{name}.log")
        made.append(side)
        return side

    yield start
    for side in made:
        side.close()


def test_what_a_side_prints_does_not_disturb_its_answers(make: Make) -> None:
    side = make("peer")
    assert side.ask("decode", 20, variant="on") == {"seconds": 0.5}
    assert side.ask("decode", 20) == {"seconds": 1.0}


def test_an_error_is_an_answer_and_the_side_goes_on(make: Make) -> None:
    side = make("peer")
    with pytest.raises(SideError, match="peer: ValueError: it does not want to"):
        side.ask("decode", 20, variant="raise")
    assert side.alive
    assert side.ask("decode", 20) == {"seconds": 1.0}


def test_a_side_that_dies_says_how(make: Make) -> None:
    side = make("peer")
    with pytest.raises(SideError, match=r"ended with 3(.|\n)*the side says why"):
        side.ask("decode", 20, variant="crash")
    assert not side.alive
    with pytest.raises(SideError, match="ended with 3"):
        side.ask("decode", 20)


def test_a_side_that_hangs_is_ended(make: Make) -> None:
    side = make("peer")
    with pytest.raises(SideError, match='"decode" had no answer in 1 s'):
        side.ask("decode", 1, variant="hang")
    assert not side.alive


def test_the_faster_variant_is_kept_and_compared(make: Make) -> None:
    conduct = Conduct(make("ours"), {"peer": make("peer")}, 5)
    figure = conduct.figure("peer", SHAPE, ("off", "on"), float("inf"))
    assert figure.tried == {"off": 10.0, "on": 20.0}
    assert figure.kept == "on"
    assert figure.ratio == pytest.approx(0.5)
    assert (len(figure.ours), len(figure.theirs)) == (4, 4)


@pytest.mark.parametrize("fault", ["raise", "crash"])
def test_a_variant_that_fails_leaves_the_other(make: Make, fault: str) -> None:
    conduct = Conduct(make("ours"), {"peer": make("peer")}, 5, {"peer": lambda: make("peer")})
    for _ in range(2):
        figure = conduct.figure("peer", SHAPE, (fault, "off"), float("inf"))
        assert figure.kept == "off"
        assert figure.ratio == pytest.approx(1)
    assert list(conduct.broken) == [("peer", fault)]


def test_a_peer_that_fails_altogether_is_data(make: Make) -> None:
    conduct = Conduct(make("ours"), {"peer": make("peer")}, 5)
    figure = conduct.figure("peer", SHAPE, ("raise", "crash"), float("inf"))
    assert figure.ratio is None
    assert figure.error is not None
    assert "it does not want to" in figure.error
    assert "ended with 3" in figure.error


def test_after_the_end_only_two_pairs_are_measured(make: Make) -> None:
    conduct = Conduct(make("ours"), {"peer": make("peer")}, 5)
    assert len(conduct.figure("peer", SHAPE, ("off",), time.monotonic()).ours) == 2


def test_a_side_that_computes_unasked_shows(make: Make) -> None:
    conduct = Conduct(make("ours"), {"loud": make("loud"), "still": make("still")}, 5)
    conduct.peers["still"].ask("decode", 20)
    conduct.peers["loud"].ask("busy", 20, seconds=30.0)
    for _ in range(3):
        conduct.ask(conduct.ours, "decode", variant="spin")
    assert conduct.idle_wall_s["loud"] > 1
    assert conduct.idle_cpu_s["loud"] > 0.1
    assert conduct.idle_cpu_s["still"] < 0.1


def test_every_prompt_is_new_and_the_same_for_all_sides() -> None:
    one, two = token_ids(300, 1, 49152), token_ids(300, 2, 49152)
    assert one == token_ids(300, 1, 49152)
    assert one[:8] != two[:8]
    assert all(0 <= token < 49152 for token in one)
    assert len(set(one)) > 250
