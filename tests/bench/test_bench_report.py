"""What a report costs is measured on one that the command's own code wrote and a browser showed."""

from __future__ import annotations

import pytest

from bench.report import LOADS, lines, measure


@pytest.mark.slow
def test_a_report_is_written_opened_and_told() -> None:
    report = measure(60, 600)
    assert report.samples == 60
    assert report.cut_at is None
    assert report.size_bytes > 100_000
    assert len(report.loads) == LOADS
    for each in report.loads:
        assert 0 < each.first_paint_ms <= each.contentful_paint_ms
        assert each.ready_ms > 0
        assert each.sample_ms > 0
    said = " ".join(lines(report))
    assert "60 samples of 600 characters" in said
    assert "every text whole" in said
