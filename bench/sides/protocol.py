"""How the measuring process talks to a side: one JSON object a line each way, over the child's pipes.

Contract: a side is a child process that computes only while it is asked. Its standard output belongs to the
protocol alone: `serve` moves it away before a library can print into it. What a side raises comes back as
an error of that question, and the child goes on; a child that does not answer in time, or dies, is ended,
and every later question to it is the same error. So a peer's failure is a fact to record and never ours.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.machine import process_seconds

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
_TAIL_BYTES = 2000

Handler = Callable[..., Mapping[str, object]]


class SideError(Exception):
    """A side could not do what it was asked; the message says what it said, or how it ended."""


class Side:
    """One child, from the measuring process's view."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        """Start it.

        Args:
            name: What errors call it.
            command: Its words, the interpreter first.
            log: A file for what it prints.
        """
        self.name = name
        self._log = log
        self._failed: str | None = None
        questions, self._questions = os.pipe()
        self._answers, answers = os.pipe()
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                command, stdin=questions, stdout=answers, stderr=stream, cwd=ROOT
            )
        os.close(questions)
        os.close(answers)
        self._open_pipes: tuple[int, ...] = (self._questions, self._answers)
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._failed is None and self._process.poll() is None

    def cpu_seconds(self) -> float:
        """Processor seconds it has used; 0 when it has ended."""
        return 0.0 if self._process.poll() is not None else process_seconds(self.pid)

    def ask(self, what: str, timeout_s: float, **arguments: object) -> dict[str, Any]:
        """Ask one question and wait for its answer.

        Raises:
            SideError: it raised, died, or did not answer in time.
        """
        if self._failed is not None:
            raise SideError(self._failed)
        try:
            os.write(self._questions, json.dumps({"do": what, **arguments}).encode() + b"\n")
        except OSError:
            raise self._fail(f"ended with {self._process.wait(10)}: {self._tail()}") from None
        answer: dict[str, Any] = json.loads(self._line(what, timeout_s))
        if "error" in answer:
            raise SideError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(30)
        for pipe in self._open_pipes:
            os.close(pipe)
        self._open_pipes = ()

    def _line(self, what: str, timeout_s: float) -> bytes:
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise self._fail(f'"{what}" had no answer in {timeout_s:.0f} s')
                data = os.read(self._answers, 1 << 16)
                if not data:
                    raise self._fail(f"ended with {self._process.wait(10)}: {self._tail()}")
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _fail(self, why: str) -> SideError:
        self._failed = f"{self.name}: {why}"
        self.close()
        return SideError(self._failed)

    def _tail(self) -> str:
        return self._log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip() or "it said nothing"


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer questions until standard input ends; run in the child.

    Each handler takes the question's arguments by name and returns the answer's fields.
    """
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            question = json.loads(line)
            handler = handlers[question.pop("do")]
            try:
                answer: Mapping[str, object] = handler(**question)
            except Exception as error:
                logger.exception("the question was %s", question)  # into the side's log; the answer names it
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


def token_ids(count: int, seed: int, vocabulary: int) -> list[int]:
    """Token ids that no earlier request had: a linear congruence from the seed, the same for every side."""
    state = (seed * 2862933555777941757 + 3037000493) % (1 << 64)
    out = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out.append((state >> 33) % vocabulary)
    return out
