"""What fails may pass: the gateway asks again, and nobody else does; only a whole answer counts."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from lanes import Told, body, chat, child, journal, lane, pool, said
from scripted_target import EVENT_STREAM, Asked, Reply, Upstream, completion, echo, streamed

GOOD = completion("good")
HTML = {"Content-Type": "text/html"}
ERROR_EVENT = b'data: {"error": {"message": "out of memory"}}\n\ndata: [DONE]\n\n'
FAULTS = {
    "500": Reply(500, b"{}"),
    "502": Reply(502, b"<html>"),
    "408": Reply(408, b"{}"),
    "429": Reply(429, b"{}"),
    "cut": Reply(body=GOOD, cut=True),
    "cut chunks": Reply(body=GOOD, chunked=True, cut=True),
    "no answer": Reply(silent=True),
    "half, in good order": Reply(body=GOOD[: len(GOOD) // 2]),
    "empty": Reply(body=b""),
    "a page": Reply(body=b"<html></html>", headers=HTML),
    "an error with 200": Reply(body=b'{"error": {"message": "overloaded"}}'),
    "broken compression": Reply(body=b"no gzip", headers={"Content-Encoding": "gzip"}),
    "cut stream": Reply(body=streamed("a b c"), headers=EVENT_STREAM, chunked=True, cut=True),
    "half a stream, in good order": Reply(
        body=streamed("a b c")[:300], headers=EVENT_STREAM, chunked=True, closing=True
    ),
    "an error in a stream": Reply(body=streamed("a")[:150] + b"\n\n" + ERROR_EVENT, headers=EVENT_STREAM),
    "an empty stream": Reply(headers=EVENT_STREAM),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_is_not_seen_by_the_child(tmp_path: Path, fault: str) -> None:
    told = Told()

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url, retries=2), told) as opened, child(opened) as client:
            assert said(await chat(client, "a")) == "good"
            assert (opened.spent.requests, opened.spent.retries, opened.spent.errors) == (1, 2, 0)
            assert opened.in_flight == opened.waiting == 0

    with Upstream(lambda asked: FAULTS[fault] if asked.number < 2 else Reply(body=GOOD)) as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 3
    assert [line["body"].encode() for line in journal(tmp_path)] == [GOOD]
    assert len(told.of("request-retried")) == 2


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_is_an_error_for_the_child_and_is_not_kept(tmp_path: Path, fault: str) -> None:
    async def scenario(base_url: str) -> int:
        async with lane(tmp_path, pool(base_url, retries=1)) as opened, child(opened) as client:
            answer = await chat(client, "a")
            assert opened.spent.errors == 1
            assert opened.in_flight == opened.waiting == 0
            return answer.status_code

    with Upstream(lambda asked: FAULTS[fault]) as server:
        status = asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 2
    assert status == (int(fault) if fault.isdigit() else 502)
    assert journal(tmp_path) == []


@pytest.mark.usefixtures("quick")
def test_the_clients_own_retries_do_not_multiply(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url, retries=2)) as opened:
            key = opened.lane.key.reveal()
            async with openai.AsyncOpenAI(
                base_url=opened.lane.base_url, api_key=key, max_retries=5
            ) as client:
                with pytest.raises(openai.InternalServerError):
                    await client.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": "a"}]
                    )

    with Upstream(lambda asked: Reply(500, b"{}")) as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 3


@pytest.mark.usefixtures("quick")
def test_a_repetition_of_the_clients_own_gets_the_failure_again(tmp_path: Path) -> None:
    """A proxy between the client and the lane may drop the header that tells the client to leave it."""

    async def scenario(base_url: str) -> list[int]:
        async with lane(tmp_path, pool(base_url, retries=1)) as opened, child(opened) as client:
            statuses = []
            for count in ("0", "1", "2", "0", "1"):
                headers = {"x-stainless-retry-count": count}
                answer = await client.post("/chat/completions", content=body("a"), headers=headers)
                statuses.append(answer.status_code)
            # One that repeats what was never given up is asked: its child had gone away, most likely.
            answer = await client.post("/chat/completions", content=body("b"), headers=headers)
            assert said(answer) == "b"
            return statuses

    with Upstream(lambda asked: echo(asked) if asked.number > 2 else Reply(500, b"{}")) as server:
        assert asyncio.run(scenario(server.base_url)) == [500, 500, 500, 200, 200]
        # Twice for the first; once each, and one retry, for the others.
        assert len(server.asked) == 2 + 2 + 1 + 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_an_endpoint_that_asks_for_it_is_left_alone_by_all_lanes(tmp_path: Path, form: str) -> None:
    until: list[float] = []
    came: list[float] = []

    def script(asked: Asked) -> Reply:
        came.append(time.time())
        if asked.number:
            return echo(asked)
        if form == "seconds":
            until.append(time.time() + 1)
            return Reply(429, b"{}", {"Retry-After": "1"})
        until.append(float(int(time.time()) + 2))
        return Reply(503, b"{}", {"Retry-After": email.utils.formatdate(until[0], usegmt=True)})

    async def scenario(base_url: str) -> None:
        told = Told()
        async with (
            lane(tmp_path, pool(base_url, slots=1, retries=1), told) as opened,
            child(opened) as client,
        ):
            first = asyncio.create_task(chat(client, "a"))
            second = asyncio.create_task(chat(client, "b"))
            assert [said(await first), said(await second)] == ["a", "b"]
            assert opened.spent.retries == 1
        assert len(told.of("endpoint-resting")) == 1

    with Upstream(script) as server:
        asyncio.run(scenario(server.base_url))
        assert [asked.json["messages"][0]["content"] for asked in server.asked] == ["a", "a", "b"]
    assert all(moment >= until[0] for moment in came[1:])


def test_an_endpoint_that_asks_for_too_long_fails_the_request_and_is_not_asked_again(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> None:
        at = pool(base_url, retries=5, longest_wait_seconds=1)
        async with lane(tmp_path, at) as opened, child(opened) as client:
            assert [(await chat(client, text)).status_code for text in "abc"] == [429, 429, 429]
            assert opened.spent.errors == 3

    with Upstream(lambda asked: Reply(429, b"{}", {"Retry-After": "3600"})) as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 1


def test_an_endpoint_that_rests_leaves_the_work_to_the_others(tmp_path: Path) -> None:
    def resting(asked: Asked) -> Reply:
        return Reply(429, b"{}", {"Retry-After": "100"})

    async def scenario(*base_urls: str) -> None:
        async with lane(tmp_path, pool(*base_urls, retries=1)) as opened, child(opened) as client:
            assert [said(await chat(client, text)) for text in "abcd"] == list("abcd")

    with Upstream(resting) as first, Upstream() as second:
        asyncio.run(scenario(first.base_url, second.base_url))
        assert (len(first.asked), len(second.asked)) == (1, 4)


def test_a_dead_endpoint_is_not_hammered_while_the_other_rests(tmp_path: Path) -> None:
    def script(asked: Asked) -> Reply:
        return echo(asked) if asked.number else Reply(429, b"{}", {"Retry-After": "1"})

    with socket.socket() as taken, Upstream(script) as server:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"

        async def scenario() -> None:
            async with (
                lane(tmp_path, pool(server.base_url, dead, retries=1)) as opened,
                child(opened) as client,
            ):
                assert said(await chat(client, "a")) == "a"
                # Once for the 429; the dead one was tried at growing distances, at no cost.
                assert 2 <= opened.spent.retries <= 5

        asyncio.run(scenario())
        assert len(server.asked) == 2


def test_a_dead_endpoint_of_a_pool_costs_no_retry(tmp_path: Path) -> None:
    told = Told()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"

        async def scenario(*base_urls: str) -> None:
            async with lane(tmp_path, pool(*base_urls, retries=0), told) as opened, child(opened) as client:
                texts = [str(number) for number in range(20)]
                answers = await asyncio.gather(*(chat(client, text) for text in texts))
                assert [said(answer) for answer in answers] == texts
                # The endpoint that answers is asked what a server tells of itself, too.
                assert (await client.get("/models")).status_code == 200

        with Upstream(lambda asked: echo(asked) if asked.body else Reply(body=b"{}")) as server:
            asyncio.run(scenario(dead, server.base_url))
            assert len(server.asked) == 21
    assert [event["endpoint"] for event in told.of("endpoint-failed")] == [dead]


@pytest.mark.usefixtures("quick")
def test_a_dead_target_is_an_error_after_its_retries(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"

        async def scenario() -> None:
            async with lane(tmp_path, pool(dead, retries=3)) as opened, child(opened) as client:
                assert (await chat(client, "a")).status_code == 502
                assert opened.spent.retries == 3
                assert (await client.get("/models")).status_code == 502

        asyncio.run(scenario())
    assert journal(tmp_path) == []


def test_an_endpoint_that_came_back_is_used_again(tmp_path: Path) -> None:
    told = Told()
    broken = threading.Event()
    broken.set()

    async def scenario(*base_urls: str) -> None:
        at = pool(*base_urls, slots=2, retries=1)
        async with lane(tmp_path, at, told) as opened, child(opened) as client:
            while not told.of("endpoint-failed"):
                assert (await chat(client, "a")).status_code == 200
            broken.clear()
            while not told.of("endpoint-works"):
                assert (await chat(client, "a")).status_code == 200
                await asyncio.sleep(0.05)

    def script(asked: Asked) -> Reply:
        return Reply(500, b"{}") if broken.is_set() else echo(asked)

    with Upstream(script) as first, Upstream() as second:
        asyncio.run(scenario(first.base_url, second.base_url))
        assert [event["endpoint"] for event in told.of("endpoint-works")] == [first.base_url]


def test_an_answer_that_takes_too_long_is_given_up_at_the_target_too(tmp_path: Path) -> None:
    never = threading.Event()

    async def scenario(base_url: str) -> int:
        at = pool(base_url, retries=1, timeout_seconds=0.2)
        async with lane(tmp_path, at) as opened, child(opened) as client:
            return (await chat(client, "a")).status_code

    with Upstream(lambda asked: Reply(body=GOOD, held=never)) as server:
        assert asyncio.run(scenario(server.base_url)) == 504
        server.wait_for(lambda: server.left == 2)


def test_a_connection_closed_in_the_wrong_moment_costs_no_retry(tmp_path: Path) -> None:
    """A server may close an idle connection while the next request is on its way to it."""
    told = Told()

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url, retries=0), told) as opened, child(opened) as client:
            assert said(await chat(client, "a")) == "a"
            assert said(await chat(client, "b")) == "b"
            assert opened.spent.errors == 0

    # To the client both are one: no byte of an answer on a connection that it kept.
    with Upstream(lambda asked: Reply(silent=True) if asked.number == 1 else echo(asked)) as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 3
    assert len(told.of("request-retried")) == 1
    assert told.of("endpoint-failed") == []


@pytest.mark.parametrize(("coding", "counted"), [("gzip", 3), ("br", None)])
def test_a_compressed_answer_is_the_same_answer(tmp_path: Path, coding: str, counted: int | None) -> None:
    # Only gzip can be made here; what the gateway cannot undo goes through as it is, with its name.
    data = gzip.compress(GOOD) if coding == "gzip" else b"\x8b\x02\x80what only the child can read\x03"
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}

    async def scenario(base_url: str) -> tuple[bytes, str | None]:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            async with client.stream("POST", "/chat/completions", content=body("a")) as answer:
                raw = b"".join([part async for part in answer.aiter_raw()])
            return raw, answer.headers.get("content-encoding")

    with Upstream(lambda asked: Reply(body=data, headers=headers)) as server:
        for _ in range(2):
            raw, named = asyncio.run(scenario(server.base_url))
            assert (raw, named) == ((GOOD, None) if coding == "gzip" else (data, coding))
        assert [asked.headers["accept-encoding"] for asked in server.asked] == ["identity"]
    assert [line["completion_tokens"] for line in journal(tmp_path)] == [counted]


def test_a_request_in_pieces_goes_on_whole(tmp_path: Path) -> None:
    sent = body("a piece at a time")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), 7):
            yield sent[start : start + 7]

    async def scenario(base_url: str) -> httpx.Response:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            return await client.post("/chat/completions", content=pieces())

    with Upstream() as server:
        assert said(asyncio.run(scenario(server.base_url))) == "a piece at a time"
        assert server.asked[0].body == sent
        assert server.asked[0].headers["content-length"] == str(len(sent))


def test_a_stream_that_leaves_out_its_end_mark_is_whole_when_each_choice_is(tmp_path: Path) -> None:
    answer = streamed("a b", done=False)

    async def scenario(base_url: str) -> httpx.Response:
        async with lane(tmp_path, pool(base_url, retries=0)) as opened, child(opened) as client:
            response = await chat(client, "a", stream=True)
            assert opened.spent.tokens == 10
            return response

    with Upstream(lambda asked: Reply(body=answer, headers=EVENT_STREAM, chunked=True)) as server:
        assert asyncio.run(scenario(server.base_url)).content == answer
