"""Every CUDA operation, run on the processor, against the same exact arithmetic as the CPU's own."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.server.cuda.conftest import ISA
from tests.server.engine import test_engine_operations as golden
from tests.server.engine.operations import DECODE, F16, INT8, PREFILL, Floats, Operations

pytestmark = pytest.mark.slow

globals().update({name: test for name, test in vars(golden).items() if name.startswith("test_")})


@pytest.fixture
def operations(emulated: Path) -> Operations:
    return Operations(ISA, emulated)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.0])
def test_sample_is_the_inverse_of_the_cumulated_distribution(emulated: Path, temperature: float) -> None:
    x = golden.gaussian(300, seed=5) * 4
    below_one = np.nextafter(np.float32(1), np.float32(0))
    uniform = np.concatenate([[0.0], np.random.default_rng(3).random(60), [below_one]]).astype(np.float32)
    weights = np.exp((x.astype(np.float64) - x.max()) / temperature)
    cumulated = np.cumsum(weights) / weights.sum()
    for number, index in zip(uniform, sample(emulated, x, temperature, uniform), strict=True):
        before = cumulated[index - 1] if index else 0.0
        assert before - 1e-5 <= number <= cumulated[index] + 1e-5


def test_sample_draws_as_often_as_the_distribution_says(emulated: Path) -> None:
    x = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    uniform = ((np.arange(400) + 0.5) / 400).astype(np.float32)
    counts = np.bincount(sample(emulated, x, 1.0, uniform), minlength=4)
    np.testing.assert_allclose(counts, [200, 100, 50, 50], atol=1)


def test_sample_never_takes_what_has_no_weight(emulated: Path) -> None:
    x = np.full(700, -np.inf, np.float32)
    x[[3, 650]] = 1.0
    x[10] = np.nan
    uniform = np.array([0.0, 0.4999, 0.5001, 0.99999994], np.float32)
    assert sample(emulated, x, 0.5, uniform).tolist() == [3, 3, 650, 650]


def test_sample_refuses_a_temperature_of_zero(emulated: Path) -> None:
    with pytest.raises(AssertionError):
        sample(emulated, np.zeros(3, np.float32), 0.0, np.zeros(1, np.float32))


def sample(library: Path, x: Floats, temperature: float, uniform: Floats) -> npt.NDArray[np.int32]:
    index = np.empty(len(uniform), np.int32)
    rows = np.ascontiguousarray(np.tile(x, (len(uniform), 1)))
    operations = Operations(ISA, library)
    operations._call("sample", rows, len(x), len(uniform), ctypes.c_float(temperature), uniform, index)
    return index


@pytest.mark.parametrize("kv", [F16, INT8])
def test_attention_takes_the_widest_heads(operations: Operations, kv: int) -> None:
    keys, values, q = (
        golden.gaussian(140, 256),
        golden.gaussian(140, 256, seed=1),
        golden.gaussian(20, 256, seed=2),
    )
    q /= np.float32(16)
    visible = [140, 1, 33, 128, 129] * 4
    answers = [operations.attention(form, q, visible, keys, values, kv) for form in (DECODE, PREFILL)]
    assert answers[0].tobytes() == answers[1].tobytes()
    kept_keys, kept_values = (kept.astype(np.float64) for kept in operations.kv_write(kv, keys, values))
    for row, seen in enumerate(visible):
        weights = np.exp(kept_keys[:seen] @ q[row])
        np.testing.assert_allclose(
            answers[0][row], weights @ kept_values[:seen] / weights.sum(), rtol=1e-4, atol=1e-5
        )
