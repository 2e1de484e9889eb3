"""Our own server behind a lane: OpenAI's client sees what it would see without, and the probe knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from lanes import Told, child, journal

from assay.gateway import Gateway, Pool
from assay.run.endpoint import Endpoint, probe
from assay.suite.target import Target
from bench.serving import NAME, server

pytestmark = pytest.mark.slow
ASK: dict[str, Any] = {"model": NAME, "max_tokens": 24, "temperature": 0}
MESSAGES: Any = [{"role": "user", "content": "Count from one to five."}]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/chat/completions", {**ASK, "messages": MESSAGES}),
    ("/chat/completions", {**ASK, "messages": MESSAGES, "n": 2, "temperature": 0.9, "seed": 3}),
    (
        "/chat/completions",
        {**ASK, "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}},
    ),
    ("/chat/completions", {**ASK, "messages": MESSAGES, "logprobs": True, "top_logprobs": 3}),
    ("/completions", {**ASK, "prompt": "One, two,"}),
    ("/chat/completions", {**ASK, "messages": [{"role": "user", "content": "far too long " * 2000}]}),
    ("/chat/completions", {**ASK, "messages": "no list"}),
]


@pytest.fixture(scope="module")
def served(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with server(model_path, tmp_path_factory.mktemp("served"), 2, None) as (port, _):
        yield Endpoint(f"http://127.0.0.1:{port}/v1", NAME, None)


def target(endpoint: Endpoint) -> Pool:
    return Pool(Target(name="t", base_url=(endpoint.base_url,), model=NAME, max_concurrency=2), [endpoint])


def sight(value: dict[str, Any]) -> dict[str, Any]:
    """An answer without what the moment gives it."""
    return {name: item for name, item in value.items() if name not in ("id", "created")}


def test_a_lane_is_the_server_and_a_second_life_its_memory(served: Endpoint, tmp_path: Path) -> None:
    async def life(stack: Gateway) -> list[tuple[int, bytes]]:
        opened = stack.open("j", target(served), tmp_path / "j.jsonl")
        async with child(opened) as client:
            answers = [await client.post(path, json=body) for path, body in REQUESTS]
        assert opened.spent.requests == len(REQUESTS)
        await opened.close()
        return [(answer.status_code, answer.content) for answer in answers]

    async def scenario() -> None:
        async with Gateway(Told()) as gateway:
            first = await life(gateway)
            assert [status for status, _ in first] == [200] * 5 + [400] * 2
            assert await life(gateway) == first
        kept = journal(tmp_path)
        assert len(kept) == len(REQUESTS)
        assert all(line["prompt_tokens"] and line["completion_tokens"] for line in kept[:5])

    asyncio.run(scenario())


def test_openais_client_finds_no_difference(served: Endpoint, tmp_path: Path) -> None:
    async def ask(base_url: str, key: str) -> list[dict[str, Any]]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
            whole = await client.chat.completions.create(messages=MESSAGES, **ASK)
            stream = await client.chat.completions.create(messages=MESSAGES, stream=True, **ASK)
            parts = [sight(part.model_dump()) async for part in stream]
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(messages=[], **ASK)
            body: Any = refused.value.body
            return [sight(whole.model_dump()), *parts, dict(body)]

    async def scenario() -> None:
        direct = await ask(served.base_url, "none")
        async with Gateway(Told()) as gateway:
            opened = gateway.open("j", target(served), tmp_path / "j.jsonl")
            assert await ask(opened.lane.base_url, opened.lane.key.reveal()) == direct

    asyncio.run(scenario())


def test_a_run_down_a_lane_finds_out_who_the_server_is(served: Endpoint, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Gateway(Told()) as gateway:
            opened = gateway.open("j", target(served), tmp_path / "j.jsonl")
            lane = Endpoint(opened.lane.base_url, opened.lane.model, opened.lane.key)
            through = await asyncio.to_thread(probe, lane)
            direct = await asyncio.to_thread(probe, served)
            assert through.claimed == direct.claimed
            assert through.fingerprint is not None

    asyncio.run(scenario())
