"""The work of `server/gpu-check`: each part in turn, appended to a file as one JSON object a line.

Contract: see :mod:`server.gpu_check`, whose child process this is. An error of
the engine ends the work with exit code 5 and a line `{"error": ...}`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from server.build import EngineBuild, EngineError, ensure_built
from server.build_cuda import ensure_built_cuda, ensure_built_emulated
from server.engine import Chunk, Engine
from server.gpu_golden import Backend, cases, compare_operations
from server.gpu_golden_hybrid import hybrid_cases
from server.gpu_speed import Decode, Measure, Roofs, decode, prefill
from server.random_hybrid import RandomHybrid
from server.random_model import RandomModel

DeviceName = Literal["cuda", "cuda-emulated"]

# About a gigabyte of weights each, far beyond every cache: in the shape of a model of eight billion
# parameters, and in that of a hybrid of twenty-seven.
LARGE = RandomModel(
    layers=10, width=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocabulary=32768, context=4096
)
LARGE_HYBRID = RandomHybrid(
    layers=4,
    width=5120,
    ffn=17408,
    heads=24,
    kv_heads=4,
    head_dim=256,
    vocabulary=32768,
    context=4096,
    interval=4,
    key_heads=16,
    value_heads=48,
    key_dim=128,
    value_dim=128,
)


class Parts:
    """The file that finished parts are appended to."""

    def __init__(self, path: Path) -> None:
        """Begins it."""
        self._path = path

    def add(self, name: str, value: object) -> None:
        """Appends one part; a number that is none is null."""
        with self._path.open("a") as file:
            file.write(json.dumps({name: _finite(value)}, allow_nan=False) + "\n")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def determinism(
    device: DeviceName, folder: Path, model: RandomModel, lengths: Sequence[int]
) -> dict[str, bool]:
    """Returns, by name, whether a small model's answers are the same bytes however they are asked for.

    Args:
        device: what computes.
        folder: where the model's file goes.
        model: the model.
        lengths: of the prompts; the first is the longest, and has 20 tokens or more.
    """
    path = folder / "small.gguf"
    model.write(path)
    prompts = [
        [(s * 31 + i * i * 7 + i // 9) % model.vocabulary for i in range(n)] for s, n in enumerate(lengths)
    ]
    with Engine(path, slots=1, context=256, device=device) as engine:
        alone = []
        for prompt in prompts:
            rows = [engine.step([Chunk(0, i, [t], "last")]).logits[0].tobytes() for i, t in enumerate(prompt)]
            alone.append(rows)
    same = {"in one batch": True, "in chunks": True, "forked": True, "again": True}
    with Engine(path, slots=len(prompts) + 1, context=256, device=device) as engine:

        def holds(chunks: list[Chunk]) -> bool:
            result = engine.step(chunks)
            expected = [alone[slot % len(prompts)][position] for slot, position in result.rows]
            return [row.tobytes() for row in result.logits] == expected

        together = [Chunk(slot, 0, prompt, "all") for slot, prompt in enumerate(prompts)]
        same["in one batch"] = holds(together)
        same["again"] = holds(together)
        first, end, last = prompts[0], len(prompts[0]), len(prompts) - 1
        middle = end * 5 // 7
        for start, stop in ((0, middle), (middle, middle + 1), (middle + 1, end - 5), (end - 5, end)):
            chunks = [Chunk(0, start, first[start:stop], "all"), Chunk(last, 0, prompts[last], "last")]
            same["in chunks"] &= holds(chunks)
        engine.fork(0, len(prompts), end - 5)
        fork = Chunk(len(prompts), end - 5, first[-5:], "all")
        same["forked"] = holds([fork, Chunk(0, end - 1, first[-1:], "all")])
    with Engine(path, slots=1, context=256, device="cuda-emulated") as engine:
        given = engine.step([Chunk(0, 0, first[:40], "all")]).logits
    with Engine(path, slots=1, context=256, device=device) as engine:
        near = engine.step([Chunk(0, 0, first[:40], "all")]).logits
    same["near the emulation"] = bool(abs(given - near).max() <= 0.05 * abs(given).max())
    return same


def speed(
    engine_path: Path, model: RandomModel | None, device: DeviceName, roofs: Roofs
) -> dict[str, list[dict[str, Any]]]:
    """Measures decode and prefill; `model` is None for a file whose shape is not ours."""
    tiny = device == "cuda-emulated"
    context, steps = (4, 4) if tiny else (128, 64)
    found: dict[str, list[dict[str, Any]]] = {"decode": [], "prefill": []}
    with Engine(engine_path, slots=8, context=64 if tiny else 2304, device=device) as engine:
        decoded: list[Decode] = [decode(engine, roofs, rows, context, steps) for rows in (1, 8)]
        found["decode"] = [asdict(each) for each in decoded]
        if model is not None:
            for tokens in (10, 20) if tiny else (512, 2048):
                found["prefill"].append(asdict(prefill(engine, model, roofs, tokens, 1 if tiny else 7)))
    return found


def work(device: DeviceName, model: Path | None, parts: Parts) -> None:
    """Does every part."""
    emulated = ensure_built_emulated()
    built: EngineBuild = ensure_built_cuda() if device == "cuda" else emulated
    plain = ensure_built()
    measure = Measure(built.library)
    parts.add("device", asdict(measure.device()))
    with tempfile.TemporaryDirectory(prefix="gpu-work-") as place:
        folder = Path(place)
        small = folder / "small.gguf"
        RandomModel().write(small)
        with Engine(small, slots=1, device=device) as engine:
            parts.add("isa", engine.isa)
        parts.add(
            "builds",
            {
                which: {
                    "library_sha256": build.library_sha256,
                    "compiler": build.compiler,
                    "flags": build.flags,
                }
                for which, build in (("device", built), ("emulated", emulated), ("plain", plain))
            },
        )
        verdicts = compare_operations(
            Backend(built.library, "cuda" if device == "cuda" else "cuda-emulated"),
            Backend(plain.library, "plain"),
            Backend(emulated.library, "cuda-emulated"),
            [*cases(large=device == "cuda"), *hybrid_cases(large=device == "cuda")],
        )
        parts.add("golden", [asdict(verdict) for verdict in verdicts])
        plainly = determinism(device, folder, RandomModel(), (140, 3, 17, 1, 30, 9, 2, 25, 12))
        hybrid = determinism(device, folder, RandomHybrid(), (70, 3, 17))
        parts.add("determinism", {**plainly, **{f"hybrid, {name}": held for name, held in hybrid.items()}})
        tiny = device == "cuda-emulated"
        roofs = measure.roofs(1 << 16, 8, 1) if tiny else measure.roofs(1 << 30, 1 << 15, 9)
        parts.add("roofs", asdict(roofs))
        measured = {
            "speed": RandomModel() if tiny else LARGE,
            "hybrid_speed": RandomHybrid() if tiny else LARGE_HYBRID,
        }
        for name, shape in measured.items():
            shape.write(folder / "measured.gguf")
            parts.add(name, speed(folder / "measured.gguf", shape, device, roofs))
        if model is not None:
            parts.add("model_speed", speed(model, None, device, roofs))


def main(arguments: Sequence[str] | None = None) -> int:
    """Works; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m server.gpu_work")
    parser.add_argument("--parts", type=Path, required=True, help="the file that parts are appended to")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args(arguments)
    parts = Parts(options.parts)
    try:
        work("cuda-emulated" if options.emulated else "cuda", options.model, parts)
    except (EngineError, RuntimeError, OSError) as error:
        parts.add("error", str(error))
        sys.stderr.write(f"gpu-check: {error}\n")
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
