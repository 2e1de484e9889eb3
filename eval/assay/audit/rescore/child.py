"""A scorer's program: in its evaluator's environment, in a private folder, without a network."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay import setup
from assay.errors import VerificationError
from assay.evaluator import Evaluator
from assay.paths import EVALUATORS
from assay.process import finish
from assay.run.native import Scratch, last_words, program

OFFLINE = EVALUATORS / "offline.py"
TIMEOUT_S = 6 * 3600.0


@contextlib.contextmanager
def private() -> Iterator[Scratch]:
    """A private folder, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="assay-rescore-") as name:
        scratch = Scratch(Path(name))
        try:
            yield scratch
        finally:
            scratch.remove()


@dataclass(frozen=True)
class Scorer:
    """A program that scores.

    Attributes:
        evaluator: Whose environment it needs.
        program: Its file's name, beside the evaluators.
        environment: Its whole environment.
        cwd: Where it runs.
    """

    evaluator: Evaluator
    program: str
    environment: Mapping[str, str]
    cwd: Path

    def run(self, words: Sequence[str | Path]) -> None:
        """Run it to its end.

        Raises:
            PrerequisiteError: the environment is not set up.
            VerificationError: it came to no end of its own: the record is nothing that it can read.
        """
        setup.require(setup.ENVIRONMENTS[self.evaluator.name])
        command = [program(self.evaluator, "python"), "-P", OFFLINE, EVALUATORS / self.program, *words]
        done = finish(command, env=self.environment, cwd=self.cwd, timeout_s=TIMEOUT_S)
        if done.returncode != 0:
            raise VerificationError(
                f"{self.program} cannot score what was recorded (exit code {done.returncode})",
                last_words(done.stderr or done.stdout),
            )
