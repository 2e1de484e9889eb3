"""A transcript is uploaded to the sandbox as a file; asked is one of its alike answers, under a given prefix.

A stand-in: `needle_count`, `context_range`, the cache directory's variable and the files' names are the real
taskset's. Where upstream would download a missing file, this one says which is missing.
"""

from __future__ import annotations

import csv
import difflib
import os
import sys
from pathlib import Path
from typing import Literal

import verifiers.v1 as vf

CACHE = "MRCR_V2_CACHE_DIR"
CONTEXT = "context/transcript.txt"
K = 1024
RANGES = {"32k-64k": (32 * K, 64 * K), "64k-128k": (64 * K, 128 * K), "128k-256k": (128 * K, 256 * K)}
QUESTION = (
    f"The file {CONTEXT} holds a conversation that ends with a request of the user. Find in it what the "
    "request asks for, and answer with that, word for word, as the request says."
)


class MRCRData(vf.TaskData):
    transcript: str
    """Uploaded, never part of the prompt."""
    answer: str
    prefix: str
    """What an answer must begin with to count at all."""


class MRCRTask(vf.Task[MRCRData]):
    async def setup(self, runtime: vf.Runtime) -> None:
        await runtime.write(CONTEXT, self.data.transcript.encode())

    @vf.reward
    async def similarity(self, trace: vf.Trace) -> float:
        reply = (trace.last_reply or "").strip()
        if not reply.startswith(self.data.prefix):
            return 0.0
        return difflib.SequenceMatcher(None, reply, self.data.answer).ratio()


class MRCRConfig(vf.TasksetConfig):
    needle_count: Literal[2, 4, 8] = 8
    context_range: Literal["32k-64k", "64k-128k", "128k-256k"] = "32k-64k"


class MRCRTaskset(vf.Taskset[MRCRTask, MRCRConfig]):
    def load(self) -> list[MRCRTask]:
        low, high = RANGES[self.config.context_range]
        name = (
            f"mrcr_v2p1_{self.config.needle_count}needle_in_({low},{high})"
            "_dynamic_fewshot_text_style_fast.csv"
        )
        csv.field_size_limit(sys.maxsize)
        tasks = []
        with _cached(name).open(encoding="utf-8", newline="") as lines:
            for index, row in enumerate(csv.DictReader(lines)):
                data = MRCRData(
                    idx=index,
                    prompt=QUESTION,
                    transcript=row["queries"],
                    answer=row["answer"],
                    prefix=row["answer"][:12],
                )
                tasks.append(MRCRTask(data, self.config.task))
        return tasks


def _cached(name: str) -> Path:
    path = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "mrcr_v2") / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: a stand-in downloads nothing")
    return path
