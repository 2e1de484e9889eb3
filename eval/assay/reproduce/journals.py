"""Questions of a suite's run: kept answers, each with the bytes that were asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assay.coordinator.directory import journal
from assay.errors import RunError
from assay.gateway.kept import Kept, kept_answers
from assay.gateway.lane import ASKED
from assay.reproduce.choose import pick
from assay.reproduce.question import Chosen, Question
from assay.reproduce.said import said
from assay.suite.suite import Suite


def choose(run: Path, suite: Suite, target: str, seed: int, most: int) -> Chosen:
    """Pick kept answers of the jobs that asked a target.

    A sample here is one answered request: which of a job's rows it became is its evaluator's business.

    Args:
        run: The run directory.
        suite: What it asked.
        target: Its name.
        seed: Decides which.
        most: How many.

    Raises:
        VerificationError: a journal is not as it was written.
        RunError: no answer of that target was kept.
    """
    jobs = [job.id for job in suite.jobs if job.target == target]
    kept = [job for job in jobs if journal(run, job).is_file()]
    lottery = pick(((job, each.number) for job in kept for each in _answered(run, job)), seed, most)
    if not lottery.finished:
        raise RunError(
            f'{run} keeps no answer of the target "{target}"',
            "nothing was answered, or the suite's retention removed what was",
            'run the suite with retention = "all"',
        )
    left_out = tuple(f"{job}: none of its answers is kept" for job in jobs if job not in kept)
    questions = tuple(
        Question(
            f"answers/{job}.jsonl number {each.number}",
            {"job": job, "number": each.number},
            target,
            each.request,
            said(each.request.path, each.answer.headers.get("content-type", ""), each.answer.body),
        )
        for job in kept
        for each in _answered(run, job)
        if (job, each.number) in lottery.picked
    )
    return Chosen(questions, lottery.finished, len(lottery.picked), left_out)


def _answered(run: Path, job: str) -> Iterator[Kept]:
    """The good answers to what a lane lets through; a stranger's record may hold any other request."""
    for kept in kept_answers(journal(run, job)):
        if (
            kept.answer.good
            and kept.request.method == "POST"
            and kept.request.path.partition("?")[0] in ASKED
        ):
            yield kept
