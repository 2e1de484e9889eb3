"""What the engine keeps is what was said, and requests leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.floors import MEMORY_RATIO
from bench.memory import SHAPES, Flatness, Footprint, flatness, footprint, judge, verdicts


def samples(slope: float, noise: float = 0.0) -> list[tuple[int, int]]:
    rng = np.random.default_rng(4)
    return [
        (number, int(200e6 + slope * max(number, 1000) + noise * rng.standard_normal()))
        for number in range(100, 10_001, 100)
    ]


def test_a_leak_is_found_and_noise_is_not() -> None:
    leak = judge(10_000, samples(500.0, 50_000.0))
    assert leak.low > 400
    assert leak.growth_share == pytest.approx(5e6 / 205e6, rel=0.1)
    assert not verdicts([], leak)[0].met
    still = judge(10_000, samples(0.0, 50_000.0))
    assert still.low <= 0 <= still.high
    assert still.growth_share == 0
    assert verdicts([], still)[0].met


def test_what_grows_while_caches_fill_is_no_leak() -> None:
    rising = [(number, 100_000_000 + min(number, 1900) * 10_000) for number in range(100, 10_001, 100)]
    assert judge(10_000, rising).bytes_per_request == 0


def test_the_ratio_leaves_out_keys_and_values() -> None:
    found = Footprint(1, 10, "f16", 160, 0, 200, 100, 50)
    assert found.ratio == pytest.approx(1.1)
    assert verdicts([found], None)[0].met
    assert not verdicts([Footprint(1, 10, "f16", 166, 0, 200, 100, 50)], None)[0].met


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "context"), SHAPES)
def test_the_engine_keeps_little_more_than_the_file(
    model_path: Path, tmp_path: Path, slots: int, context: int
) -> None:
    found = footprint(model_path, slots, context, "f16", tmp_path)
    print(found)
    assert found.engine_bytes > found.kv_bytes + 0.9 * found.file_bytes  # it was really opened and filled
    assert found.ratio <= MEMORY_RATIO


def check(found: Flatness, requests: int) -> None:
    print(found.bytes_per_request, found.low, found.high, found.resident_bytes[-1])
    assert found.requests == requests
    assert found.resident_bytes[-1] > 50e6
    assert verdicts([], found)[0].met


@pytest.mark.slow
def test_a_few_hundred_requests_leave_memory_flat(model_path: Path, tmp_path: Path) -> None:
    found = flatness(model_path, 400, tmp_path)
    assert found.requests == 400
    steady = found.resident_bytes[len(found.resident_bytes) // 2]
    assert found.resident_bytes[-1] - steady <= 4 << 20


@pytest.mark.long
def test_ten_thousand_requests_leave_memory_flat(model_path: Path, tmp_path: Path) -> None:
    check(flatness(model_path, 10_000, tmp_path), 10_000)
