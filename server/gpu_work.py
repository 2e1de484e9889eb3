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
from server.gpu_speed import Decode, Measure, decode, prefill
from server.random_model import RandomModel

DeviceName = Literal["cuda", "cuda-emulated"]

# Over a gigabyte of weights: far beyond every cache, in the shape of a model of eight billion parameters.
LARGE = RandomModel(
    layers=10, width=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocabulary=32768, context=4096
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


def determinism(device: DeviceName, folder: Path) -> dict[str, bool]:
    """Returns, by name, whether a small model's answers are the same bytes however they are asked for."""
    path = folder / "small.gguf"
    model = RandomModel()
    model.write(path)
    lengths = (140, 3, 17, 1, 30, 9, 2, 25, 12)
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
        for start, end in ((0, 100), (100, 101), (101, 129), (129, 140)):
            chunks = [Chunk(0, start, prompts[0][start:end], "all"), Chunk(4, 0, prompts[4], "last")]
            same["in chunks"] &= holds(chunks)
        engine.fork(0, len(prompts), 135)
        fork = Chunk(len(prompts), 135, prompts[0][135:], "all")
        same["forked"] = holds([fork, Chunk(0, 139, prompts[0][139:], "all")])
    with Engine(path, slots=1, context=256, device="cuda-emulated") as engine:
        given = engine.step([Chunk(0, 0, prompts[0][:40], "all")]).logits
    with Engine(path, slots=1, context=256, device=device) as engine:
        near = engine.step([Chunk(0, 0, prompts[0][:40], "all")]).logits
    same["near the emulation"] = bool(abs(given - near).max() <= 0.05 * abs(given).max())
    return same


def speed(
    engine_path: Path, model: RandomModel | None, device: DeviceName, measure: Measure, parts: Parts
) -> None:
    """Measures the roofs, then decode and prefill; `model` is None for a file whose shape is not ours."""
    tiny = device == "cuda-emulated"
    roofs = measure.roofs(1 << 16, 8, 1) if tiny else measure.roofs(1 << 30, 1 << 15, 9)
    if model is not None:
        parts.add("roofs", asdict(roofs))
    context, steps = (4, 4) if tiny else (128, 64)
    found: dict[str, list[dict[str, Any]]] = {"decode": [], "prefill": []}
    with Engine(engine_path, slots=8, context=64 if tiny else 2304, device=device) as engine:
        decoded: list[Decode] = [decode(engine, roofs, rows, context, steps) for rows in (1, 8)]
        found["decode"] = [asdict(each) for each in decoded]
        if model is not None:
            for tokens in (10, 20) if tiny else (512, 2048):
                found["prefill"].append(asdict(prefill(engine, model, roofs, tokens, 1 if tiny else 7)))
    parts.add("speed" if model is not None else "model_speed", found)


def work(device: DeviceName, model: Path | None, parts: Parts) -> None:
    """Does every part."""
    emulated = ensure_built_emulated()
    built: EngineBuild = ensure_built_cuda() if device == "cuda" else emulated
    plain = ensure_built()
    measure = Measure(built.library)
    parts.add("device", asdict(measure.device()))
    with tempfile.TemporaryDirectory(prefix="gpu-work-") as name:
        folder = Path(name)
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
        parts.add("determinism", determinism(device, folder))
        measured = RandomModel() if device == "cuda-emulated" else LARGE
        measured.write(folder / "measured.gguf")
        speed(folder / "measured.gguf", measured, device, measure, parts)
        if model is not None:
            speed(model, None, device, measure, parts)


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
