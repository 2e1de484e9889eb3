"""From generations to a response: whole, or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.errors import ApiError, context_exceeded, invalid
from server.follower import ClientGoneError, Follower
from server.generation import Delta, Generation
from server.schema import AnswerRequest
from server.service import Served
from server.wire import Choice, Tally, Wire, dumps

# Longer texts are tokenized off the event loop, whose other streams would stall meanwhile.
LONG_TEXT = 1 << 15

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A request made ready: what to generate, how to write it, and the tokens its prompts have."""

    generations: Sequence[Generation]
    wire: Wire
    prompt_tokens: int
    choices: int  # of each prompt
    stream: bool
    include_usage: bool


def check_model(name: str | None, served: Served) -> None:
    """Raise ApiError 404 unless `name` is what is served; None is."""
    if name is not None and name != served.name:
        raise ApiError(
            404,
            f"the model {name!r} does not exist here; this server has {served.name!r}",
            code="model_not_found",
            param="model",
        )


async def tokens_of(served: Served, text: str, guard: str | None = None) -> Prompt:
    """Return the ids of a text."""
    if len(text) < LONG_TEXT:
        return tuple(served.tokenizer.encode(text, guard))
    return tuple(await asyncio.to_thread(served.tokenizer.encode, text, guard))


def check_ids(ids: Sequence[int], vocabulary: int, param: str) -> None:
    """Raise ApiError 400 for an id outside the vocabulary."""
    if ids and max(ids) >= vocabulary:
        raise invalid(f"{param}: {max(ids)} is no token id below {vocabulary}", param)


def first_choices(
    served: Served,
    asked: AnswerRequest,
    prompts: Sequence[Prompt],
    limit: int | None,
    top_logprobs: int | None,
    param: str,
) -> list[Generation]:
    """Return the first choice of each prompt, cut to the context.

    Args:
        served: what answers.
        asked: the request.
        prompts: token ids, each at least one.
        limit: the most tokens to generate; None: as many as the context has room for.
        top_logprobs: alternatives beside each token, None without log-probabilities.
        param: the parameter to blame.
    """
    most = served.scheduler.limits.waiting
    if len(prompts) * (asked.n or 1) > most:
        raise invalid(f"{len(prompts) * (asked.n or 1)} choices in one request, at most {most}", param)
    sampling, stops = asked.sampling(served.vocabulary), asked.stops()
    # Without a seed each request has its own; a sampled answer is then not to be repeated.
    seed = int.from_bytes(os.urandom(8), "little") if asked.seed is None else asked.seed
    out: list[Generation] = []
    for prompt in prompts:
        if not prompt:
            raise invalid("the prompt has no tokens", param)
        room = served.context - len(prompt)
        if room < 0 or (room == 0 and limit != 0):
            raise context_exceeded(len(prompt), served.context, param)
        out.append(
            Generation(
                prompt=prompt,
                max_tokens=room if limit is None else min(limit, room),
                sampling=sampling,
                seed=seed,
                choice=0,
                stops=stops,
                top_logprobs=top_logprobs,
                ignore_end=bool(asked.ignore_eos),
                cache_prompt=asked.cache_prompt is not False,
            )
        )
    return out


def plan_of(asked: AnswerRequest, firsts: Sequence[Generation], wire: Wire) -> Plan:
    """Return the plan of a request whose prompts' first choices are ready: each has `n` of them."""
    choices = asked.n or 1
    return Plan(
        [replace(first, choice=choice) if choice else first for first in firsts for choice in range(choices)],
        wire,
        sum(len(first.prompt) for first in firsts),
        choices,
        bool(asked.stream),
        asked.include_usage,
    )


async def answer(served: Served, plan: Plan, request: Request) -> Response:
    """Submit a plan and return its response; ApiError 429 when the queue is full."""
    ticket = served.scheduler.submit(plan.generations)
    follower = Follower(served.scheduler, ticket, len(plan.generations), request.receive)
    if not plan.stream:
        with follower:
            return await _whole(plan, follower)
    try:
        # The status line waits for the first token: until then a failure is still an HTTP error.
        first = await follower.next()
    except (ApiError, ClientGoneError, asyncio.CancelledError):
        follower.close()
        raise
    return _EventStream(plan, follower, first)


async def _whole(plan: Plan, follower: Follower) -> Response:
    choices = [Choice() for _ in plan.generations]
    tally = Tally(plan.prompt_tokens, plan.choices)
    while deltas := await follower.next():
        for delta in deltas:
            choices[delta.choice].add(delta)
            tally.add(delta)
    return Response(plan.wire.whole(choices, tally.usage()), media_type="application/json")


class _EventStream(Response):
    """Server-sent events, written straight to ASGI: one send for all that a step brought."""

    media_type = "text/event-stream"

    def __init__(self, plan: Plan, follower: Follower, first: Sequence[Delta]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache"})
        self._plan = plan
        self._follower = follower
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._follower:
            # What init_headers wrote has no content-length: the length is not known.
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                last = await self._events(send)
            except ApiError as error:  # too late for a status: the stream says it
                last = f"data: {dumps(error.body())}\n\n"
            except ClientGoneError:
                return
            await send({"type": "http.response.body", "body": last.encode(), "more_body": False})

    async def _events(self, send: Send) -> str:
        """Send the events of every delta and return what ends the stream."""
        plan, deltas, chunk = self._plan, self._first, self._plan.wire.chunk
        tally = Tally(plan.prompt_tokens, plan.choices)
        while deltas:
            text = ""
            for delta in deltas:
                tally.add(delta)
                text += chunk(delta)
            if text:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            deltas = await self._follower.next()
        counts = plan.wire.usage_chunk(tally.usage()) if plan.include_usage else ""
        return counts + "data: [DONE]\n\n"
