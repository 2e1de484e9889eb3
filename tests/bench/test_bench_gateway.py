"""The gateway's cost is measured on requests that went through it, and a replay on none that did."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench import machine
from bench.gateway import MANY, Process, Report, lines, measure, serve_target

PAIRS, COUNT = 4, 16


@pytest.mark.slow
def test_pairs_are_of_the_target_itself_and_of_the_lane(tmp_path: Path) -> None:
    journal = tmp_path / "bench.jsonl"
    with Process(serve_target) as target:
        figures, replay = asyncio.run(measure(PAIRS, COUNT, journal, target.told))
    assert [(each.at_once, each.comparison.pairs) for each in figures] == [(1, PAIRS), (MANY, PAIRS)]
    assert all(each.direct_per_s > 0 and each.lane_per_s > 0 for each in figures)
    # What warms up, what is measured, and what is replayed afterwards: each was asked once.
    asked = (1 + PAIRS * COUNT) + (MANY + PAIRS * COUNT) + COUNT
    assert journal.read_bytes().count(b"\n") == asked
    report = Report("now", "bench", machine.describe(), 0.0, 1.0, tuple(figures), replay)
    assert len(lines(report)) == 3
