"""A gateway with lanes to targets, in the loop of a test, and a child's requests down them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from scripted_target import Upstream, numbered

from assay.gateway import Gateway, OpenLane, Pool, Spent
from assay.run.endpoint import Endpoint
from assay.run.key import Key
from assay.suite.job import Budget
from assay.suite.target import Requests, Target

SECRET = "sk-the-targets-own-key"


class Told:
    """What a gateway said: its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def __call__(self, kind: str, fields: Mapping[str, object]) -> None:
        self.events.append((kind, json.loads(json.dumps(fields))))

    def of(self, kind: str) -> list[Mapping[str, object]]:
        return [fields for said, fields in self.events if said == kind]


def pool(*base_urls: str, slots: int = 4, **request: Any) -> Pool:
    """A target's pool."""
    target = Target(
        name="t", base_url=base_urls, model="m", max_concurrency=slots, request=Requests(**request)
    )
    return Pool(target, [Endpoint(url, "m", Key(SECRET)) for url in base_urls])


@contextlib.asynccontextmanager
async def lane(
    folder: Path,
    at: Pool,
    told: Told | None = None,
    budget: Budget | None = None,
    spent: Spent | None = None,
) -> AsyncIterator[OpenLane]:
    """The lane of the job `j`, its journal in the folder."""
    async with Gateway(told or Told()) as gateway:
        yield gateway.open("j", at, folder / "j.jsonl", budget or Budget(), spent or Spent())


def body(text: str, **more: Any) -> bytes:
    """A chat request."""
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more}).encode()


@contextlib.asynccontextmanager
async def child(opened: OpenLane) -> AsyncIterator[httpx.AsyncClient]:
    """A child's client of a lane."""
    headers = {
        "Authorization": f"Bearer {opened.lane.key.reveal()}",
        "Content-Type": "application/json",
    }
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=opened.lane.base_url, headers=headers, timeout=60, limits=limits, trust_env=False
    ) as client:
        yield client


async def chat(client: httpx.AsyncClient, text: str, **more: Any) -> httpx.Response:
    return await client.post("/chat/completions", content=body(text, **more))


def said(response: httpx.Response) -> str:
    """The words of a whole answer."""
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


async def until(state: Callable[[], bool]) -> None:
    """Wait until the state is reached, or fail."""
    async with asyncio.timeout(30):
        while not state():
            await asyncio.sleep(0.005)


def journal(folder: Path) -> list[dict[str, Any]]:
    """The lines of the job's journal."""
    return [json.loads(line) for line in (folder / "j.jsonl").read_bytes().split(b"\n")[:-1]]


def fill(folder: Path) -> None:
    """Keep the answers to a, b and a again."""

    async def scenario(base_url: str) -> None:
        async with lane(folder, pool(base_url)) as opened, child(opened) as client:
            assert [said(await chat(client, text)) for text in "aba"] == ["a#0", "b#1", "a#2"]

    with Upstream(numbered) as server:
        asyncio.run(scenario(server.base_url))
