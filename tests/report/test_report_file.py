"""The file: the same bytes from the same run, below its limit whatever was said, and told where it is cut."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_view import MadeView, plain, row
from opened import Opened

from assay.errors import ConfigurationError
from assay.report import write as writing
from assay.report.chunks import Chunks, cut
from assay.report.write import write_report


def noise(length: int, seed: int = 0) -> str:
    """Letters that hardly compress."""
    return random.Random(seed).randbytes(length // 2 + 1).hex()[:length]


def data(path: Path) -> dict[str, Any]:
    """The file's data by its elements' ids."""
    found = re.findall(r'<script type="application/gzip" id="([a-z0-9-]+)">([^<]*)<', path.read_text("utf-8"))
    return {name: json.loads(gzip.decompress(base64.b64decode(letters))) for name, letters in found}


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_report([MadeView(plain(100))], tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_every_row_and_every_exchange_is_in_it(tmp_path: Path) -> None:
    rows = plain(150)
    written = write_report([MadeView(rows)], tmp_path / "report.html")
    assert written.samples == 150
    assert written.cut_at is None
    assert written.size_bytes == (tmp_path / "report.html").stat().st_size
    found = data(tmp_path / "report.html")
    (side,) = found["index"]["sides"]
    for number, (sample, exchange) in enumerate(rows):
        assert exchange is not None
        item = found[f"a-{side['columns']['chunk'][number]}"][side["columns"]["place"][number]]
        assert item["row"]["cluster"] == sample.cluster
        assert [message["text"] for message in item["exchange"]["messages"]] == [
            message.text for message in exchange.messages
        ]


def test_a_report_stays_below_its_limit_and_says_what_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LIMIT_BYTES", writing.ITSELF_BYTES + 400_000)
    rows = [row(number, answer=noise(40_000, number)) for number in range(60)]
    written = write_report([MadeView(list(rows))], tmp_path / "report.html")
    assert written.cut_at is not None
    assert written.size_bytes < writing.ITSELF_BYTES + 400_000
    assert f"cut in their middle to {written.cut_at:,} characters" in (tmp_path / "report.html").read_text()
    head, gone, tail = data(tmp_path / "report.html")["a-0"][0]["exchange"]["messages"][-1]["text"]
    answer = noise(40_000, 0)
    assert answer.startswith(head)
    assert answer.endswith(tail)
    assert len(head) + gone + len(tail) == len(answer)
    assert len(head) + len(tail) == written.cut_at


def test_two_runs_share_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LIMIT_BYTES", writing.ITSELF_BYTES + 400_000)
    views = [
        MadeView([row(number, answer=noise(20_000, number + side)) for number in range(40)])
        for side in (0, 99)
    ]
    assert write_report(views, tmp_path / "report.html").size_bytes < writing.ITSELF_BYTES + 400_000


def test_what_cannot_be_cut_below_the_limit_is_refused_and_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("before")
    monkeypatch.setattr(writing, "LIMIT_BYTES", writing.ITSELF_BYTES + 8_000)
    with pytest.raises(ConfigurationError, match="a report of this run would take"):
        write_report([MadeView(plain(400))], tmp_path / "report.html")
    monkeypatch.setattr(writing, "MOST_ROWS", 10)
    with pytest.raises(ConfigurationError, match="has 11 samples, and a page holds at most 10"):
        write_report([MadeView(plain(11))], tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "before"


def test_a_text_beyond_any_page_is_cut_even_where_there_is_room(tmp_path: Path) -> None:
    write_report([MadeView([row(0, answer="x" * (1 << 21))])], tmp_path / "report.html")
    text = data(tmp_path / "report.html")["a-0"][0]["exchange"]["messages"][-1]["text"]
    assert text[1] == 1 << 20


@pytest.mark.slow
def test_a_cut_is_shown_where_it_is(opening: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LIMIT_BYTES", writing.ITSELF_BYTES + 60_000)
    found = opening([MadeView([row(number, answer=noise(9_000, number)) for number in range(30)])])
    found.page.keyboard.press("j")
    found.page.wait_for_selector("#sample .left-out")
    assert "characters left out here" in found.page.inner_text("#sample .left-out")


@given(st.text(max_size=300), st.integers(16, 200))
def test_a_cut_keeps_both_ends_and_counts_the_middle(text: str, length: int) -> None:
    found = cut(text, length)
    if len(text) <= length:
        assert found == text
    else:
        head, gone, tail = found
        assert len(head) + len(tail) == length
        assert text == head + text[len(head) : len(head) + gone] + tail


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=40), st.integers(9_000, 40_000))
def test_pieces_fit_or_say_that_they_do_not(lengths: list[int], limit: int) -> None:
    with Chunks() as chunks:
        for number, length in enumerate(lengths):
            chunks.add(*row(number, answer=noise(length, number)))
        whole = chunks.size
        try:
            chunks.fit(limit)
        except ConfigurationError:
            assert chunks.cut_at == 16
            return
        assert chunks.size <= limit
        assert chunks.size == sum(map(len, chunks.encoded()))
        assert (chunks.cut_at is None) == (whole <= limit)
