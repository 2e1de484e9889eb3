"""Asking the questions again, as the gateway asks: byte for byte, with its slots and its retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from assay.gateway.asking import Asking
from assay.gateway.connections import Connections
from assay.gateway.message import Answer
from assay.gateway.pool import Line, Pool
from assay.reproduce.outcome import Outcome
from assay.reproduce.question import Question
from assay.reproduce.said import differences, said
from assay.reproduce.server import Reached
from assay.suite.target import Target

LOG = logging.getLogger(__name__)
SHOWN_CHARACTERS = 200


def ask(questions: Iterable[Question], target: Target, reached: Reached) -> tuple[Outcome, ...]:
    """Ask all of them, as many at once as the target takes, and compare.

    Args:
        questions: What is asked, in the order of the outcomes.
        target: How each request is made, and how many at once.
        reached: Who is asked.
    """
    return asyncio.run(_ask(tuple(questions), target, reached))


async def _ask(questions: tuple[Question, ...], target: Target, reached: Reached) -> tuple[Outcome, ...]:
    connections = Connections()
    pool = Pool(target, reached.endpoints)
    line = pool.join(target.max_concurrency)
    try:
        asking = [_one(each, connections, pool, line) for each in questions]
        return tuple(await asyncio.gather(*asking))
    finally:
        await connections.close()


async def _one(question: Question, connections: Connections, pool: Pool, line: Line) -> Outcome:
    request = question.asking(pool.doors[0].endpoint.model)
    async with Asking(connections, pool, line, request, _told).answered() as answer:
        return judged(question, answer)


def _told(kind: str, fields: Mapping[str, object]) -> None:
    LOG.info("%s %s", kind, dict(fields))


def judged(question: Question, answer: Answer) -> Outcome:
    """What an answer shows: a refusal that would be the same again differs, any other is no answer."""
    if not answer.good:
        text = answer.body[:SHOWN_CHARACTERS].decode("utf-8", "replace")
        refused = f"it answered {answer.status}: {text}"
        return Outcome(
            question, "differs" if answer.final else "unanswered", (refused,), None, answer.seconds
        )
    now = said(question.request.path, answer.headers.get("content-type", ""), answer.body)
    why = tuple(differences(question.then, now))
    if not why:
        return Outcome(question, "same", (), now, answer.seconds)
    return Outcome(question, "drawn" if question.drawn else "differs", why, now, answer.seconds)
