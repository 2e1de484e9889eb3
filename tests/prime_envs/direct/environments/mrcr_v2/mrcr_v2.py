"""A stand-in for mrcr-v2 of the older kind: the whole transcript in the prompt, one turn. No benchmark."""

from __future__ import annotations

import csv
import difflib
import os
import sys
from pathlib import Path
from typing import Any

import verifiers as vf
from datasets import Dataset

CACHE = "MRCR_V2_CACHE_DIR"
K = 1024
RANGES = {"32k-64k": (32 * K, 64 * K), "64k-128k": (64 * K, 128 * K), "128k-256k": (128 * K, 256 * K)}


def load_environment(
    needle_count: int = 8, context_range: str = "32k-64k", max_prompt_chars: int | None = None
) -> vf.Environment:
    """The environment.

    Args:
        needle_count: Alike answers in each transcript.
        context_range: Which file of the cache.
        max_prompt_chars: Rows with more characters are left out.
    """
    low, high = RANGES[context_range]
    name = f"mrcr_v2p1_{needle_count}needle_in_({low},{high})_dynamic_fewshot_text_style_fast.csv"
    csv.field_size_limit(sys.maxsize)
    with (Path(os.environ[CACHE]) / name).open(encoding="utf-8", newline="") as lines:
        rows = [
            {"prompt": [{"role": "user", "content": row["queries"]}], "answer": row["answer"]}
            for row in csv.DictReader(lines)
            if max_prompt_chars is None or len(row["queries"]) <= max_prompt_chars
        ]

    def similarity(completion: Any, answer: str, **_: Any) -> float:
        reply = str(completion[-1].get("content") or "").strip() if completion else ""
        if not reply.startswith(answer[:12]):
            return 0.0
        return difflib.SequenceMatcher(None, reply, answer).ratio()

    return vf.SingleTurnEnv(eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[similarity]))
