"""Progress: lines by the clock without a terminal, a table on one, and nothing claimed that is not known."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys

import pytest
from rich.text import Text

from assay.coordinator import progress
from assay.coordinator.progress import Display, Line, duration


class Clock:
    """A monotonic clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_line_tells_phase_count_elapsed_rate_and_time_left(clock: Clock) -> None:
    line = Line("aime25", 30)
    line.phase("ask")
    line.slots(4)
    assert line.text() == "aime25: ask: 0/30, 0 s, ?, left ?, 4 slot(s)"
    clock.now += 10
    line.reached(5)
    assert line.text() == "aime25: ask: 5/30, 10 s, 0.50/s, left 50 s, 4 slot(s)"
    clock.now += 10
    line.end("partial")
    line.end("done")
    clock.now += 1000
    assert line.text() == "aime25: partial: 5/30, 20 s, 0.25/s"


def test_an_unknown_total_stays_unknown_until_it_is_told(clock: Clock) -> None:
    line = Line("job", None)
    clock.now += 4
    line.reached(2)
    assert line.text() == "job: start: 2/?, 4 s, 0.50/s, left ?"
    line.reached(2, 4)
    line.reached(2, None)
    assert line.text() == "job: start: 2/4, 4 s, 0.50/s, left 4 s"


def test_the_rate_is_of_late_so_that_kept_answers_promise_nothing(clock: Clock) -> None:
    line = Line("job", 2000)
    clock.now += 2
    line.reached(1000)
    for _ in range(200):
        clock.now += 1
        line.reached(line.done + 1)
    assert line.rate == pytest.approx(1.0)
    clock.now += 600
    assert line.rate is None, "nothing came for longer than the rate looks back"


def test_a_time_is_told_as_a_person_reads_it() -> None:
    assert [duration(each) for each in (None, 0, 119, 120, 7199, 9000)] == [
        "?",
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2.5 h",
    ]


def test_a_silent_job_has_heartbeats_without_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    async def show() -> None:
        async with Display(0.01) as display:
            silent = display.job("silent", None)
            ended = display.job("ended", 3)
            ended.reached(3)
            ended.end("done")
            said = ""
            while said.count("silent") < 4:
                await asyncio.sleep(0.005)
                said += capsys.readouterr().err
            silent.end("failed")
            silent.end("failed")
            lines.extend((said + capsys.readouterr().err).splitlines())

    lines: list[str] = []
    asyncio.run(asyncio.wait_for(show(), 60))
    assert sum(line.startswith("assay: silent: start: 0/?") for line in lines) >= 4
    assert sum(line.startswith("assay: silent: failed: 0/?") for line in lines) == 1
    assert sum(line.startswith("assay: ended: done: 3/3") for line in lines) == 1
    assert sum(line.startswith("assay: ended") for line in lines) == 2, "what has ended has no heartbeat"
    assert all(line.isprintable() for line in lines)


def test_nothing_beats_after_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    async def show() -> None:
        async with Display(0.001) as display:
            display.job("job", 1)
        capsys.readouterr()
        await asyncio.sleep(0.05)

    asyncio.run(show())
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_table_that_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    outer, inner = os.openpty()
    os.set_blocking(outer, False)

    async def show(reader: io.FileIO) -> bytes:
        shown = b""
        async with Display(0.001) as display:
            line = display.job("aime25", 30)
            line.phase("ask")
            display.job("unknown", None)
            line.reached(7)
            while b"7/30" not in shown or b"0/?" not in shown:
                await asyncio.sleep(0.01)
                shown += reader.read() or b""
            line.end("done")
        return shown + (reader.read() or b"")

    with os.fdopen(inner, "w") as terminal, io.FileIO(outer) as reader:
        monkeypatch.setattr(sys, "stderr", terminal)
        text = asyncio.run(asyncio.wait_for(show(reader), 60)).decode()
    assert "\x1b[" in text, "a terminal is drawn on"
    assert re.search(r"aime25 +done +7/30", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
    assert "assay: " not in text, "no heartbeats beside the table"


def test_the_table_keeps_every_active_job_on_a_small_terminal() -> None:
    display = Display(1.0)
    for number in range(9):
        display._lines.append(Line(f"job-{number}", 1))
    for line in display._lines[:7]:
        line.end("done")
    table = display.table(height=progress.FRAME_LINES + 3)
    assert list(table.columns[0].cells) == [Text(f"job-{number}") for number in (6, 7, 8)]
    assert len(list(display.table(height=1).columns[0].cells)) == 2
