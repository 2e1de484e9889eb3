"""llama.cpp's log-probabilities of named ids, from the ready-built wheel `xllamacpp`, in its own process.

Contract: `python -m tests.server.engine.llama_cpp MODEL` reads {"tokens": [...], "ids": [[...], ...]} from
stdin and prints {"top": [...], "log_probabilities": [[...], ...]}: after token i, the log-probabilities of
ids[i] before any sampling. The server is asked for its most likely ids, and for all of them where one that
was asked for is not among them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

_LIKELY = 1500
_ALL = 1 << 20


@dataclass(frozen=True)
class Answer:
    """One engine's answer to the same question at every position."""

    top: npt.NDArray[np.int64]  # the most likely id
    log_probabilities: npt.NDArray[np.float64]  # of the ids asked for, [positions, ids]


def ask(model: Path, tokens: list[int], ids: npt.NDArray[np.int64]) -> Answer:
    """Runs llama.cpp over one sequence; its own words are in the error when it fails."""
    question = json.dumps({"tokens": tokens, "ids": ids.tolist()})
    result = subprocess.run(
        [sys.executable, "-m", "tests.server.engine.llama_cpp", str(model)],
        input=question,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    if result.returncode != 0:
        raise RuntimeError(f"llama.cpp ended with {result.returncode}: {result.stderr[-2000:]}")
    answer = json.loads(result.stdout.splitlines()[-1])
    return Answer(np.array(answer["top"], np.int64), np.array(answer["log_probabilities"], np.float64))


def _serve(model: str, tokens: list[int], ids: list[list[int]]) -> dict[str, list[object]]:
    import xllamacpp  # only the child loads it: it brings threads and handlers of its own

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = 1024
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = 2
    parameters.warmup = False
    server = xllamacpp.Server(parameters)

    def likely(position: int, count: int) -> list[dict[str, object]]:
        answer = server.handle_completions(
            {"prompt": tokens[: position + 1], "n_predict": 1, "n_probs": count, "temperature": 0.0}
        )
        entries: list[dict[str, object]] = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return entries

    top: list[object] = []
    rows: list[object] = []
    for position, wanted in enumerate(ids):
        entries = likely(position, _LIKELY)
        known = {entry["id"]: entry["logprob"] for entry in entries}
        if not known.keys() >= set(wanted):
            known = {entry["id"]: entry["logprob"] for entry in likely(position, _ALL)}
        top.append(entries[0]["id"])
        rows.append([known[token] for token in wanted])
    return {"top": top, "log_probabilities": rows}


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    print(json.dumps(_serve(sys.argv[1], asked["tokens"], asked["ids"])))
