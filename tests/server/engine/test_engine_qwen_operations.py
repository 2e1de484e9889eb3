"""The operations that the Qwen families add, on every backend, against exact arithmetic in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bench import reference
from tests.server.checkpoints.models import FIXTURES
from tests.server.engine.hybrid_operations import rope_row
from tests.server.engine.operations import Operations


@pytest.fixture
def operations(isa: str) -> Operations:
    return Operations(isa)


def gaussian(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [8, 16, 24, 40, 64, 72, 128, 256])
def test_a_head_of_any_size_is_normed(operations: Operations, n: int) -> None:
    x, weight = gaussian(n) * 7, gaussian(n, seed=1)
    expected = reference.rmsnorm(x.astype(np.float64), weight.astype(np.float64), 1e-6)
    np.testing.assert_allclose(operations.rmsnorm(x, weight, 1e-6), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rope_dim", "sections"),
    [(64, [11, 11, 10, 0]), (32, [6, 5, 5, 0]), (32, [16, 0, 0, 0]), (20, [4, 3, 3])],
)
def test_a_row_of_rotations_interleaves_the_three_positions(rope_dim: int, sections: list[int]) -> None:
    positions = [700, 31, 9000]
    frequency = 1e7 ** (-np.arange(0, rope_dim, 2) / rope_dim)
    # Pairs turn by the time; of each three one by the height and one by the width, while sections last.
    turned = np.full(rope_dim // 2, positions[0])
    for stream in (1, 2):
        turned[stream : 3 * sections[stream] : 3] = positions[stream]
    assert [int((turned == position).sum()) for position in positions] == sections[:3]
    cosine, sine = rope_row(rope_dim, 1e7, sections, positions)
    np.testing.assert_allclose(cosine, np.cos(turned * frequency), rtol=0, atol=1e-7)
    np.testing.assert_allclose(sine, np.sin(turned * frequency), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["tiny", "27b"])
def test_a_row_of_rotations_is_the_public_implementations(name: str) -> None:
    with np.load(FIXTURES / "rope_rows.npz") as rows:
        for index, positions in enumerate(rows["positions"].tolist()):
            cosine, sine = rows[f"{name}_cosine"][index], rows[f"{name}_sine"][index]
            given = rope_row(2 * len(cosine), 1e7, rows[f"{name}_sections"].tolist(), positions)
            rounding = 1e-6 + 1e-7 * max(positions)  # of the public angles, which are float32
            np.testing.assert_allclose(given, (cosine, sine), rtol=0, atol=rounding)
