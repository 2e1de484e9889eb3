"""Tiny programs, asked for in words and run on hidden cases inside the sandbox by `verify.py`.

A stand-in: version, date filter and the way the six files come out of the hub's cache are the real taskset's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf

REPOSITORY = "livecodebench/code_generation_lite"
FILES = {
    "v6": ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"),
}
VERIFY = (Path(__file__).parent / "verify.py").read_bytes()
FENCE = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)
INSTRUCTION = (
    "Write a Python program that reads standard input and prints the answer. Put it into one code block."
)


class LiveCodeBenchData(vf.TaskData):
    question_id: str
    cases: str
    """Hidden cases as JSON; they reach the sandbox only for scoring."""


class LiveCodeBenchTask(vf.Task[LiveCodeBenchData]):
    @property
    def key(self) -> str:
        return self.data.question_id

    async def setup(self, runtime: vf.Runtime) -> None:
        # While the sandbox still has a network: scoring comes after it is cut.
        await runtime.prepare_uv_script(VERIFY)

    @vf.reward
    async def passed(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        blocks = FENCE.findall(trace.last_reply or "")
        if not blocks:
            return 0.0
        await runtime.write("verify/program.py", blocks[-1].encode())
        await runtime.write("verify/cases.json", self.data.cases.encode())
        done = await runtime.run_uv_script(VERIFY, args=["verify/program.py", "verify/cases.json", "6"])
        if done.exit_code != 0:
            raise RuntimeError(f"verify.py failed: {done.stderr.strip()[-500:]}")
        result = json.loads(done.stdout.strip().splitlines()[-1])
        return float(result["passed"] == result["cases"])


class LiveCodeBenchConfig(vf.TasksetConfig):
    version: Literal["v6"] = "v6"
    start_date: str = "8/1/2024"
    """Month/day/year, inclusive."""
    end_date: str = "5/1/2025"
    """Month/day/year, inclusive."""


class LiveCodeBenchTaskset(vf.Taskset[LiveCodeBenchTask, LiveCodeBenchConfig]):
    def load(self) -> list[LiveCodeBenchTask]:
        first, last = (_day(text) for text in (self.config.start_date, self.config.end_date))
        chosen = [row for row in self._rows() if first <= datetime.fromisoformat(row["contest_date"]) <= last]
        return [
            LiveCodeBenchTask(
                LiveCodeBenchData(
                    idx=index,
                    prompt=f"{row['question_content']}\n\n{INSTRUCTION}",
                    question_id=row["question_id"],
                    cases=row["private_test_cases"],
                ),
                self.config.task,
            )
            for index, row in enumerate(chosen)
        ]

    def _rows(self) -> Iterator[dict[str, Any]]:
        from huggingface_hub import hf_hub_download

        for name in FILES[self.config.version]:
            path = hf_hub_download(REPOSITORY, name, repo_type="dataset")
            with Path(path).open(encoding="utf-8") as lines:
                yield from (json.loads(line) for line in lines)


def _day(text: str) -> datetime:
    return datetime.strptime(text, "%m/%d/%Y")
