"""The coordinator's own cost: what grows too fast, or is kept, is found; and a small size really runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import coordinator
from bench.coordinator import Cost, cost, exponent, growth, main, verdicts

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)


def costs(wall: Callable[[int], float], peak: Callable[[int], float] = lambda samples: 100e6) -> list[Cost]:
    return [Cost(samples, wall(samples), wall(samples), int(peak(samples)), samples) for samples in SIZES]


def linear(samples: int) -> float:
    return 2.0 + samples / 5000


def test_what_is_linear_and_flat_passes() -> None:
    found = costs(linear)
    assert exponent(found) == pytest.approx(1.0, abs=0.01)
    assert growth(found) == 1.0
    assert all(each.met for each in verdicts(found))


def test_what_grows_faster_than_the_samples_fails() -> None:
    found = costs(lambda samples: 2.0 + samples / 1e5 + 3e-10 * samples**2)
    assert [each.met for each in verdicts(found)] == [True, False, True]


def test_what_is_slow_fails() -> None:
    assert [each.met for each in verdicts(costs(lambda samples: 2.0 + samples / 1500))] == [False, True, True]


def test_what_keeps_samples_in_memory_fails() -> None:
    found = costs(linear, lambda samples: 100e6 + 15 * samples)
    assert [each.met for each in verdicts(found)] == [True, True, False]


def test_too_few_sizes_pass_nothing_that_they_cannot_show() -> None:
    found = costs(linear)[:2]
    assert exponent(found) is None
    assert growth(found) is None
    assert [each.met for each in verdicts(found)] == [False, False, False]


def test_a_small_size_is_run_by_the_user_s_command(tmp_path: Path) -> None:
    found = cost(100, tmp_path)
    assert found.samples == 100
    assert found.peak_bytes > 10e6
    assert found.written_bytes > 10_000
    assert found.cpu_s > 0


def test_figures_that_cannot_pass_are_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_size = {each.samples: each for each in costs(linear)}
    monkeypatch.setattr(coordinator, "cost", lambda samples, folder: by_size[samples])
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["floors_met"] is True
    assert main(["--most", "1000", "--json"]) == 5
    assert "FAIL" in capsys.readouterr().err
