"""`/v1/chat/completions` and `/v1/completions`: from a checked request to generations, and back to JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from server.body import read_json
from server.errors import ApiError, context_exceeded, invalid
from server.follower import ClientGoneError, Follower
from server.generation import Delta, Generation
from server.schema import ChatRequest, CompletionRequest, parse
from server.service import Served, Service
from server.wire import ChatWire, Choice, CompletionWire, Wire, dumps, usage_of

# Longer texts are tokenized off the event loop, whose other streams would stall meanwhile.
LONG_TEXT = 1 << 15

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A request made ready: what to generate, how to write it, and the tokens its prompts have."""

    generations: Sequence[Generation]
    wire: Wire
    prompt_tokens: int
    stream: bool
    include_usage: bool


async def chat_completions(service: Service, request: Request) -> Response:
    """Answer `POST /v1/chat/completions`."""
    served = service.ready()
    asked = parse(ChatRequest, await read_json(request))
    _check_model(asked.model, served)
    if served.template is None:
        raise invalid("this model has no chat template; use /v1/completions", "model")
    wanted = asked.wanted_logprobs()
    generation = asked.add_generation_prompt
    rendered = served.template.render(
        [message.plain() for message in asked.messages],
        asked.chat_template_kwargs or {},
        add_generation_prompt=True if generation is None else generation,
    )
    prompt = await _tokens(served, rendered.text, rendered.guard)
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    generations = _generations(served, asked, [prompt], limit, wanted, "messages")
    wire = ChatWire(
        served.name,
        served.fingerprint,
        served.tokenizer,
        logprobs=wanted is not None,
        usage=asked.include_usage,
    )
    plan = Plan(generations, wire, len(prompt), bool(asked.stream), asked.include_usage)
    return await _answer(served, plan, request)


async def completions(service: Service, request: Request) -> Response:
    """Answer `POST /v1/completions`."""
    served = service.ready()
    asked = parse(CompletionRequest, await read_json(request))
    _check_model(asked.model, served)
    prompts, texts = await _prompts(served, asked)
    limit = 16 if asked.max_tokens is None else asked.max_tokens
    generations = _generations(served, asked, prompts, limit, asked.logprobs, "prompt")
    wire = CompletionWire(
        served.name,
        served.fingerprint,
        served.tokenizer,
        logprobs=asked.logprobs is not None,
        usage=asked.include_usage,
        echoes=[text for text in texts for _ in range(asked.n or 1)] if asked.echo else None,
    )
    total = sum(len(prompt) for prompt in prompts)
    plan = Plan(generations, wire, total, bool(asked.stream), asked.include_usage)
    return await _answer(served, plan, request)


def _check_model(name: str, served: Served) -> None:
    if name != served.name:
        raise ApiError(
            404,
            f"the model {name!r} does not exist here; this server has {served.name!r}",
            code="model_not_found",
            param="model",
        )


async def _tokens(served: Served, text: str, guard: str | None = None) -> Prompt:
    if len(text) < LONG_TEXT:
        return tuple(served.tokenizer.encode(text, guard))
    return tuple(await asyncio.to_thread(served.tokenizer.encode, text, guard))


async def _prompts(served: Served, asked: CompletionRequest) -> tuple[list[Prompt], list[str]]:
    """Return the prompts' ids and, for `echo`, their texts."""
    given = asked.prompt
    if isinstance(given, str):
        return [await _tokens(served, given)], [given]
    prompts: list[Prompt] = []
    texts: list[str] = []
    whole = [given] if given and isinstance(given[0], int) else given
    for item in whole:
        if isinstance(item, str):
            prompts.append(await _tokens(served, item))
            texts.append(item)
        elif isinstance(item, list):
            _check_ids(item, served.vocabulary)
            prompts.append(tuple(item))
            texts.append(served.tokenizer.decode(item, control=True))
    if not prompts:
        raise invalid("prompt: the list is empty", "prompt")
    return prompts, texts


def _check_ids(ids: Sequence[int], vocabulary: int) -> None:
    if ids and max(ids) >= vocabulary:
        raise invalid(f"prompt: {max(ids)} is no token id below {vocabulary}", "prompt")


def _generations(
    served: Served,
    asked: ChatRequest | CompletionRequest,
    prompts: Sequence[Prompt],
    limit: int | None,
    top_logprobs: int | None,
    param: str,
) -> list[Generation]:
    """Return a generation for each choice of each prompt, cut to the context."""
    choices = asked.n or 1
    most = served.scheduler.limits.waiting
    if len(prompts) * choices > most:
        raise invalid(f"{len(prompts) * choices} choices in one request, at most {most}", param)
    sampling, stops = asked.sampling(served.vocabulary), asked.stops()
    # Without a seed each request has its own; a sampled answer is then not to be repeated.
    seed = int.from_bytes(os.urandom(8), "little") if asked.seed is None else asked.seed
    scored = isinstance(asked, CompletionRequest) and bool(asked.echo) and top_logprobs is not None
    out: list[Generation] = []
    for prompt in prompts:
        if not prompt:
            raise invalid("the prompt has no tokens", param)
        room = served.context - len(prompt)
        if room < 0 or (room == 0 and limit != 0):
            raise context_exceeded(len(prompt), served.context, param)
        out.extend(
            Generation(
                prompt=prompt,
                max_tokens=room if limit is None else min(limit, room),
                sampling=sampling,
                seed=seed,
                choice=choice,
                stops=stops,
                top_logprobs=top_logprobs,
                prompt_logprobs=scored,
                ignore_end=bool(asked.ignore_eos),
            )
            for choice in range(choices)
        )
    return out


async def _answer(served: Served, plan: Plan, request: Request) -> Response:
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
    while deltas := await follower.next():
        for delta in deltas:
            choices[delta.index].add(delta)
    usage = usage_of(plan.prompt_tokens, sum(choice.generated for choice in choices))
    return Response(dumps(plan.wire.whole(choices, usage)), media_type="application/json")


class _EventStream(StreamingResponse):
    """Server-sent events, written straight to ASGI: one send for all that a step brought."""

    def __init__(self, plan: Plan, follower: Follower, first: Sequence[Delta]) -> None:
        super().__init__(
            self._events(), headers={"Cache-Control": "no-cache"}, media_type="text/event-stream"
        )
        self._plan = plan
        self._follower = follower
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._follower:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                async for data in self.body_iterator:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except ClientGoneError:
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        plan, deltas = self._plan, self._first
        generated = [0] * len(plan.generations)
        try:
            while deltas:
                for delta in deltas:
                    generated[delta.index] = delta.generated
                if data := b"".join(map(plan.wire.chunk, deltas)):
                    yield data
                deltas = await self._follower.next()
        except ApiError as error:  # too late for a status: the stream says it
            yield f"data: {json.dumps(error.body())}\n\n".encode()
            return
        if plan.include_usage:
            yield plan.wire.usage_chunk(usage_of(plan.prompt_tokens, sum(generated)))
        yield b"data: [DONE]\n\n"
