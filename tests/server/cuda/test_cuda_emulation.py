"""The emulation finds what a device would leave undefined, and says where."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from server import build, build_cuda, inspection
from server.build import SOURCES
from server.build_cuda import ensure_built_emulated
from server.engine import Chunk, Engine, EngineError
from tests.server.cuda.conftest import ISA
from tests.server.engine import hybrid_golden as golden
from tests.server.engine.hybrid_operations import HALVES, PAIRS, HybridOperations
from tests.server.engine.operations import DECODE, PREFILL, Operations

pytestmark = pytest.mark.slow

CUDA = SOURCES / "cuda"
DEFECTS = {
    "removed_barrier": "is read before it is written",
    "removed_second_barrier": "without a barrier after",
    "removed_warp_barrier": "without a barrier after",
    "divergent_barrier": "a divergent barrier: thread 0 is at line",
    "divergent_shuffle": r"a divergent warp operation: one lane is at line \d+, lane 0 waits at line",
    "returned_lane": "a divergent warp operation: .*lane 3 has returned",
    "partial_mask": "a shuffle with a partial mask",
    "beyond_shared": "index 64 of a shared array of 64",
    "beyond_arena": "the shared memory asked for at the launch is too small",
    "unwritten_shared": "dynamic shared memory at byte 36 is read before it is written",
    "beyond_device_memory": "an access outside of device memory, 256 bytes into an allocation of 256",
    "misaligned_read": "a misaligned read of device memory",
    "copy_not_awaited": "is read before it is written",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("broken") / "broken_kernels"
    sources = [
        Path(__file__).parent / "broken_kernels.cu",
        CUDA / "check.cu",
        *(CUDA / "emulation").glob("*.cu"),
    ]
    flags = [*build_cuda._EMULATED_FLAGS, "-O1", f"-I{CUDA}"]
    subprocess.run([build.find_compiler(), *flags, "-x", "c++", *sources, "-o", target], check=True)
    return target


def test_a_kernel_without_a_defect_passes(program: Path) -> None:
    assert subprocess.run([program, "none"], check=False).returncode == 0


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_and_named(program: Path, defect: str) -> None:
    done = subprocess.run([program, defect], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert re.search(DEFECTS[defect], done.stdout), done.stdout
    assert re.search(
        r"broken_kernels\.cu:\d+: .*turn.*block \(0, 0, 0\), thread \(\d+, 0, 0\)", done.stdout
    ), done.stdout


BARRIER = re.compile(r"__sync(?:threads|warp)\(\);")
BARRIERS = [
    (path.name, index)
    for path in sorted(CUDA.glob("*.cu"))
    for index in range(len(BARRIER.findall(path.read_text())))
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "index"), BARRIERS)
def test_no_barrier_of_a_kernel_can_be_removed(
    name: str, index: int, tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each barrier is there for a reason that an operation or a whole model shows."""
    expected = whole_model(tiny_path), hybrid_operations(ensure_built_emulated().library)
    sources = tmp_path / "engine"
    shutil.copytree(SOURCES, sources)
    text = (sources / "cuda" / name).read_text()
    found = list(BARRIER.finditer(text))[index]
    (sources / "cuda" / name).write_text(text[: found.start()] + text[found.end() :])
    for module in (build, build_cuda):
        monkeypatch.setattr(module, "SOURCES", sources)
    broken = ensure_built_emulated(tmp_path / "out")
    monkeypatch.setitem(inspection.DEVICES, "cuda-emulated", lambda: broken)

    def shown() -> None:
        every_operation(Operations(ISA, broken.library))
        assert (whole_model(tiny_path), hybrid_operations(broken.library)) == expected

    with pytest.raises((AssertionError, EngineError)):
        shown()


def every_operation(operations: Operations) -> None:
    x = np.random.default_rng(0).standard_normal((9, 192)).astype(np.float32)
    operations.quantise(x[0], 2)
    operations.rmsnorm(x[0], x[1], 1e-5)
    operations.argmax(x[0])
    for form in (DECODE, PREFILL):
        operations.qlinear(form, 0, np.ones((40, 192 * 4), np.uint8), x[:2])
        operations.qlinear(form, 8, np.ones((40, 6 * 34), np.uint8), x, 2)
        operations.attention(form, x[:5, :64].copy(), [130, 3, 9, 40, 60], x_positions(130), x_positions(130))


def hybrid_operations(library: Path) -> list[bytes]:
    operations = HybridOperations(ISA, library)
    cosine, sine = (each.astype(np.float32) for each in golden.angles(64))
    head, heads = golden.gaussian(64), golden.gaussian(3, 64)
    answers = [operations.head(style, head, heads[0], 1e-5, cosine, sine) for style in (PAIRS, HALVES)]
    answers.append(operations.gated_norm(heads, head, heads, 1e-5))
    given = golden.delta_inputs("two-value-heads-a-key-head", 140)
    answers += [operations.delta(given, cuts) for cuts in ([140], [64, 76], [30, 110])]
    return [answer.tobytes() for answer in answers]


def x_positions(count: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((count, 64)).astype(np.float32)


def whole_model(path: Path) -> bytes:
    with Engine(path, slots=1, context=40, device="cuda-emulated") as model:
        prompt = model.step([Chunk(0, 0, list(range(20)), "all")]).logits.tobytes()
        return prompt + model.step([Chunk(0, 20, [3], "last")]).logits.tobytes()
