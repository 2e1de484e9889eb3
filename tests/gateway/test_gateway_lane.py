"""A request goes through a lane unchanged, and its answer comes back unchanged and is kept."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import httpx
import openai
import pytest
from lanes import SECRET, Told, body, chat, child, journal, lane, pool, said, until
from scripted_target import EVENT_STREAM, Asked, Reply, Upstream, completion, streamed

from assay.gateway import Pool
from assay.run.endpoint import Endpoint
from assay.run.key import Key
from assay.suite.job import Budget
from assay.suite.target import Target


def test_openais_client_is_answered_whole_and_streamed(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened:
            client = openai.AsyncOpenAI(base_url=opened.lane.base_url, api_key=opened.lane.key.reveal())
            async with client:
                whole = await client.chat.completions.create(
                    model=opened.lane.model, messages=[{"role": "user", "content": "one two"}]
                )
                assert whole.choices[0].message.content == "one two"
                stream = await client.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": "three four"}],
                    stream=True,
                    stream_options={"include_usage": True},
                )
                words = [part.choices[0].delta.content async for part in stream if part.choices]
                assert words == ["three", "four", None]
            assert opened.spent.requests == 2
            assert (opened.spent.prompt_tokens, opened.spent.completion_tokens) == (14, 6)

    with Upstream() as server:
        asyncio.run(scenario(server.base_url))


def test_request_and_answer_are_the_same_bytes_on_both_sides(tmp_path: Path) -> None:
    noise = random.Random(7)
    sent = b'{"messages": [{"content": "\\u00e9 \\ud83d\\ude00  "}], "model":"m"}\n'
    answers = [
        completion("é 😀 \u0085 \u2028"),
        b'{"choices": [],   "x": "' + bytes(noise.randrange(97, 123) for _ in range(1 << 20)) + b'"}\r\n',
        streamed("é 😀 \u0085"),
        b'data: {"choices": []}\r\n\r\n: a comment\r\n\r\ndata: [DONE]\r\n\r\n',
    ]

    def script(asked: Asked) -> Reply:
        answer = answers[asked.number]
        stream = answer.startswith(b"data")
        return Reply(body=answer, headers=EVENT_STREAM, chunked=True) if stream else Reply(body=answer)

    async def ask(base_url: str) -> list[bytes]:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            return [(await client.post("/chat/completions?a=%20b", content=sent)).content for _ in answers]

    with Upstream(script) as server:
        assert asyncio.run(ask(server.base_url)) == answers
        assert asyncio.run(ask(server.base_url)) == answers
        assert [asked.body for asked in server.asked] == [sent] * len(answers)
        assert {asked.path for asked in server.asked} == {"/v1/chat/completions?a=%20b"}


def test_an_answer_that_was_kept_is_replayed_and_nothing_is_asked(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> list[str]:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            answers = [said(await chat(client, text)) for text in ("a", "b", "a", "a")]
            spent.append((opened.spent.requests, opened.spent.replayed, opened.spent.tokens))
            return answers

    spent: list[tuple[int, int, int]] = []

    def script(asked: Asked) -> Reply:
        return Reply(body=completion(f"{asked.json['messages'][-1]['content']}{asked.number}"))

    with Upstream(script) as server:
        assert asyncio.run(scenario(server.base_url)) == ["a0", "b1", "a2", "a3"]
        assert asyncio.run(scenario(server.base_url)) == ["a0", "b1", "a2", "a3"]
        assert len(server.asked) == 4
    kept = journal(tmp_path)
    assert [(line["number"], line["endpoint"], line["status"]) for line in kept] == [
        (number, server.base_url, 200) for number in range(4)
    ]
    assert all(line["seconds"] > 0 for line in kept)
    # The second life finds what the first one spent in the journal.
    assert spent == [(4, 0, 40), (4, 4, 40)]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_answer_that_would_be_the_same_again_is_kept(tmp_path: Path, status: int) -> None:
    refused = b'{"error": {"message": "the prompt is too long"}}'

    async def scenario(base_url: str) -> httpx.Response:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            return await chat(client, "a")

    with Upstream(lambda asked: Reply(status, refused)) as server:
        for _ in range(2):
            answer = asyncio.run(scenario(server.base_url))
            assert (answer.status_code, answer.content) == (status, refused)
        assert len(server.asked) == 1


@pytest.mark.parametrize("status", [302, 401, 403, 404, 429, 500, 503])
def test_an_answer_that_may_be_another_next_time_is_asked_for_again(tmp_path: Path, status: int) -> None:
    async def scenario(base_url: str) -> tuple[int, int]:
        async with lane(tmp_path, pool(base_url, retries=0)) as opened, child(opened) as client:
            return (await chat(client, "a")).status_code, opened.spent.errors

    with Upstream(lambda asked: Reply(status, b"{}")) as server:
        assert asyncio.run(scenario(server.base_url)) == (status, 1)
        assert asyncio.run(scenario(server.base_url)) == (status, 1)
        assert len(server.asked) == 2
    assert journal(tmp_path) == []


def test_ten_megabytes_go_both_ways(tmp_path: Path) -> None:
    text = "0123456789" * 1_000_000

    async def scenario(base_url: str) -> None:
        for _ in range(2):
            async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
                assert said(await chat(client, text)) == text

    with Upstream() as server:
        asyncio.run(scenario(server.base_url))
        assert [len(asked.body) for asked in server.asked] == [len(body(text))]
    assert (tmp_path / "j.jsonl").stat().st_size < 1_000_000


def test_the_targets_key_reaches_the_target_and_nobody_else(tmp_path: Path) -> None:
    told = Told()

    def script(asked: Asked) -> Reply:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        headers = {"Content-Type": "application/json", "X-Request-Id": SECRET, "Set-Cookie": f"a={SECRET}"}
        told = json.dumps({"choices": [], "error": f"wrong key {SECRET}"}).encode()
        return Reply((400, 500, 200, 200)[asked.number], told, headers)

    async def scenario(base_url: str) -> list[httpx.Response]:
        async with lane(tmp_path, pool(base_url, retries=0), told) as opened, child(opened) as client:
            return [*[await chat(client, text) for text in "abc"], await client.get("/models")]

    with Upstream(script) as server:
        answers = asyncio.run(scenario(server.base_url))
        # Nothing of one answer goes into the next request.
        assert all("cookie" not in asked.headers for asked in server.asked)
    assert [answer.status_code for answer in answers] == [400, 500, 200, 200]
    shown = "".join(answer.text + str(answer.headers) for answer in answers)
    assert SECRET not in shown
    assert SECRET not in (tmp_path / "j.jsonl").read_text()
    assert SECRET not in json.dumps(told.events)


def test_a_key_that_is_a_word_is_not_taken_out_of_an_answer(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> str:
        target = Target(name="t", base_url=(base_url,), model="m", max_concurrency=1)
        open_server = Pool(target, [Endpoint(base_url, "m", Key("none"))])
        async with lane(tmp_path, open_server) as opened, child(opened) as client:
            return said(await chat(client, "none of these"))

    with Upstream() as server:
        assert asyncio.run(scenario(server.base_url)) == "none of these"


def test_a_lane_opens_to_its_own_key_alone(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened, httpx.AsyncClient(trust_env=False) as client:
            url = f"{opened.lane.base_url}/chat/completions"
            for headers in (
                {},
                {"Authorization": f"Bearer {SECRET}"},
                {"Authorization": "Bearer é".encode()},
            ):
                assert (await client.post(url, content=body("a"), headers=headers)).status_code == 401
            elsewhere = url.replace("/j/", "/k/")
            key = {"Authorization": f"Bearer {opened.lane.key.reveal()}"}
            assert (await client.post(elsewhere, content=body("a"), headers=key)).status_code == 404
            own = {"x-api-key": opened.lane.key.reveal()}
            assert (await client.post(url, content=body("a"), headers=own)).status_code == 200

    with Upstream() as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 1


def test_what_a_server_tells_of_itself_is_passed_through_and_never_kept(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> list[tuple[int, str]]:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            root = opened.lane.base_url.removesuffix("/v1")
            paths = ["/v1/models", "/identity", "/props", "/version", "/v1/models/m", "/metrics", "/v1/files"]
            answers = [await client.get(root + path) for path in paths]
            return [(answer.status_code, answer.text) for answer in answers]

    def script(asked: Asked) -> Reply:
        return Reply(404 if asked.path == "/props" else 200, f'"{asked.path} {asked.number}"'.encode())

    with Upstream(script) as server:
        told = asyncio.run(scenario(server.base_url))
        assert told[:3] == [(200, '"/v1/models 0"'), (200, '"/identity 1"'), (404, '"/props 2"')]
        assert [status for status, _ in told[3:]] == [200, 200, 404, 404]
        assert len(server.asked) == 5
    assert journal(tmp_path) == []


def test_a_budget_of_tokens_ends_the_asking_and_counts_earlier_lives(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> list[int]:
        async with lane(tmp_path, pool(base_url), told, Budget(tokens=25)) as opened, child(opened) as client:
            statuses = [(await chat(client, text)).status_code for text in "abc"]
            assert opened.exhausted.is_set()
            assert opened.spent.tokens == 30
            # What is beyond the budget is no failure: it is not answered while the job is being ended.
            beyond = asyncio.create_task(chat(client, "d"))
            await until(lambda: opened.busy)
            assert (await client.get("/nowhere")).status_code == 404
            assert not beyond.done()
            await opened.close()
            return [*statuses, (await beyond).status_code]

    told = Told()
    with Upstream() as server:
        assert asyncio.run(scenario(server.base_url)) == [200, 200, 200, 503]
        assert asyncio.run(scenario(server.base_url)) == [200, 200, 200, 503]
        assert len(server.asked) == 3
    assert [event["tokens"] for event in told.of("budget-exhausted")] == [30, 30]


def test_tokens_that_no_server_counted_are_said_to_be_missing(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> tuple[int, int]:
        async with lane(tmp_path, pool(base_url), told) as opened, child(opened) as client:
            for text in "ab":
                assert (await chat(client, text, stream=True)).status_code == 200
            return opened.spent.uncounted, opened.spent.tokens

    told = Told()
    with Upstream(lambda asked: Reply(body=streamed("a", usage=None), headers=EVENT_STREAM)) as server:
        assert asyncio.run(scenario(server.base_url)) == (2, 0)
    assert len(told.of("usage-missing")) == 1
    assert [line["completion_tokens"] for line in journal(tmp_path)] == [None, None]


def test_a_child_that_speaks_nonsense_harms_nobody(tmp_path: Path) -> None:
    nonsense = [
        b"\r\n\r\n",
        b"POST /j/v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /j/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /j HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n",
        b"GET /../j/v1/../../etc HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            port = httpx.URL(opened.lane.base_url).port
            for data in nonsense:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                writer.write_eof()
                writer.close()
            assert said(await chat(client, "a")) == "a"

    with Upstream() as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 1


def test_requests_on_one_connection_are_answered_in_their_order(tmp_path: Path) -> None:
    async def scenario(base_url: str) -> bytes:
        async with lane(tmp_path, pool(base_url)) as opened:
            url = httpx.URL(opened.lane.base_url)
            reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
            for text in ("first", "second"):
                sent = body(text)
                writer.write(
                    f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: x\r\n"
                    f"Authorization: Bearer {opened.lane.key.reveal()}\r\n"
                    f"Connection: {'close' if text == 'second' else 'keep-alive'}\r\n"
                    f"Content-Length: {len(sent)}\r\n\r\n".encode()
                    + sent
                )
            found = await reader.read()
            writer.close()
            return found

    with Upstream() as server:
        found = asyncio.run(scenario(server.base_url))
        assert found.count(b"200 OK") == 2
        assert 0 < found.index(b'"first"') < found.index(b'"second"')
