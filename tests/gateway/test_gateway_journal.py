"""Kept answers: on the disk before they are seen, replayed in the order of asking, repaired or refused."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lanes import Told, chat, child, fill, journal, lane, pool, said, until
from scripted_target import EVENT_STREAM, Asked, Reply, Upstream, completion, echo, numbered, streamed

from assay.errors import VerificationError
from assay.gateway.journal import Journal
from assay.gateway.message import Answer, Request


class Flushes:
    """`os.fdatasync` under a test's hand: it waits for `go`, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.go = threading.Event()
        real = os.fdatasync

        def flush(handle: int) -> None:
            self.count += 1
            self.go.wait()
            real(handle)

        monkeypatch.setattr(os, "fdatasync", flush)


def test_a_child_sees_nothing_before_its_answer_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = Flushes(monkeypatch)

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            begun: list[int] = []

            async def ask() -> bytes:
                async with client.stream("POST", "/chat/completions", content=request) as answer:
                    begun.append(answer.status_code)
                    return await answer.aread()

            asking = asyncio.create_task(ask())
            await until(lambda: flushes.count == 1)
            await asyncio.sleep(0.1)
            seen, in_flight = list(begun), opened.in_flight
            flushes.go.set()
            # Its slot is held for the disk, so that a kill loses no more answers than there are slots.
            assert (seen, in_flight) == ([], 1)
            assert await asking == streamed("a b c")

    request = json.dumps({"messages": [], "stream": True}).encode()
    with Upstream(lambda asked: Reply(body=streamed("a b c"), headers=EVENT_STREAM, chunked=True)) as server:
        asyncio.run(scenario(server.base_url))


def test_many_answers_share_one_flush_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = Flushes(monkeypatch)

    def asked(number: int) -> Request:
        return Request("POST", "/v1/chat/completions", (), b"%d" % number)

    async def scenario() -> None:
        kept = Journal(tmp_path / "j.jsonl", Told())
        first = kept.keep(asked(0), Answer(200, {}, b"0"))
        await until(lambda: flushes.count == 1)
        others = [kept.keep(asked(number), Answer(200, {}, b"%d" % number)) for number in range(1, 65)]
        flushes.go.set()
        await first
        places = await asyncio.gather(*others)
        assert flushes.count == 2
        assert [(await kept.read(place)).body for place in places] == [b"%d" % n for n in range(1, 65)]
        await kept.close()

    asyncio.run(scenario())
    assert [line["number"] for line in journal(tmp_path)] == list(range(65))


def test_equal_requests_get_the_kept_answers_one_by_one_at_any_concurrency(tmp_path: Path) -> None:
    """Repeats stay several answers: none is handed out twice, also when the next life asks all at once."""

    async def scenario(base_url: str, rounds: list[int]) -> list[list[str]]:
        async with lane(tmp_path, pool(base_url, slots=8)) as opened, child(opened) as client:
            found = []
            for count in rounds:
                answers = await asyncio.gather(*(chat(client, "a") for _ in range(count)))
                found.append(sorted(said(answer) for answer in answers))
            return found

    with Upstream(numbered) as server:
        (first,) = asyncio.run(scenario(server.base_url, [5]))
        assert len(set(first)) == 5
        one_by_one = asyncio.run(scenario(server.base_url, [1, 1, 1, 1, 1]))
        assert sorted(answer for (answer,) in one_by_one) == first
        assert len(server.asked) == 5
        # Eight are wanted now: five are there, and three are asked, while others of them are in flight.
        kept, (sixth,) = asyncio.run(scenario(server.base_url, [7, 1]))
        assert len(server.asked) == 8
        assert set(first) < {*kept, sixth}
        assert len({*kept, sixth}) == 8


def test_the_kth_asking_is_replayed_while_an_earlier_one_is_in_flight(tmp_path: Path) -> None:
    held = threading.Event()

    async def first_life(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            lost = asyncio.create_task(chat(client, "a"))
            await until(lambda: server.in_flight == 1)
            # The second asking overtakes the first, which never gets an answer.
            assert said(await chat(client, "a")) == "a#1"
            lost.cancel()
            await until(lambda: server.left == 1)

    async def second_life(base_url: str) -> list[str]:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            answers = await asyncio.gather(chat(client, "a"), chat(client, "a"))
            assert (opened.spent.replayed, opened.spent.requests) == (1, 2)
            return sorted(said(answer) for answer in answers)

    def script(asked: Asked) -> Reply:
        return Reply(body=numbered(asked).body, held=None if asked.number else held)

    with Upstream(script) as server:
        asyncio.run(first_life(server.base_url))
        assert asyncio.run(second_life(server.base_url)) == ["a#1", "a#2"]


def test_an_answer_whose_child_went_away_is_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = Flushes(monkeypatch)

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened:
            async with child(opened) as client:
                lost = asyncio.create_task(chat(client, "a"))
                await until(lambda: flushes.count == 1)
                lost.cancel()
            await until(lambda: not opened.busy)
            flushes.go.set()
            async with child(opened) as client:
                assert said(await chat(client, "a")) == "a#0"
                assert said(await chat(client, "a")) == "a#1"

    with Upstream(numbered) as server:
        asyncio.run(scenario(server.base_url))


def ask_again(folder: Path, told: Told) -> tuple[list[str], int]:
    """Ask for a, b and a; the answers, and how many were asked."""

    async def scenario(base_url: str) -> list[str]:
        async with lane(folder, pool(base_url), told) as opened, child(opened) as client:
            return [said(await chat(client, text)) for text in "aba"]

    def fresh(asked: Asked) -> Reply:
        return Reply(body=completion(f"{asked.json['messages'][0]['content']} anew"))

    with Upstream(fresh) as server:
        return asyncio.run(scenario(server.base_url)), len(server.asked)


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_torn_last_line_is_cut_off_said_and_asked_again(tmp_path: Path, cut: int) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    torn = lines[2][:cut]
    path.write_bytes(lines[0] + lines[1] + torn)
    told = Told()
    assert ask_again(tmp_path, told) == (["a#0", "b#1", "a anew"], 1)
    assert [event["bytes_cut"] for event in told.of("tail-repaired")] == [len(torn)]
    assert ask_again(tmp_path, Told()) == (["a#0", "b#1", "a anew"], 0)


def test_a_line_that_stands_there_twice_counts_once(tmp_path: Path) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[0] + lines[1] + lines[0])
    told = Told()
    assert ask_again(tmp_path, told) == (["a#0", "b#1", "a anew"], 1)
    assert [event["lines"] for event in told.of("lines-twice")] == [2]


def altered(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def apply(line: bytes) -> bytes:
        value = json.loads(line)
        change(value)
        return json.dumps(value).encode() + b"\n"

    return apply


@pytest.mark.parametrize(
    "change",
    [
        lambda line: b"{}\n",
        lambda line: b"\n",
        lambda line: b"\0" * len(line) + b"\n",
        lambda line: b"[" * 100_000 + b"\n",
        lambda line: b"",
        altered(lambda value: value.update(number=7)),
        altered(lambda value: value.update(key="0")),
        altered(lambda value: value.update(status="200")),
        altered(lambda value: value.update(schema_version="assay/answer/v1")),
        altered(lambda value: value.pop("request")),
        altered(lambda value: value["request"].update(body=7)),
        altered(lambda value: value["request"]["headers"].update(accept=None)),
    ],
)
def test_a_line_that_is_not_as_it_was_written_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + change(lines[1]) + lines[2])
    with pytest.raises(VerificationError, match=f"byte {len(lines[0])}"):
        ask_again(tmp_path, Told())


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(body="{}"),
        lambda value: value.update(form="deflate"),
        lambda value: value.update(status=400),
        lambda value: value.update(completion_tokens=value["completion_tokens"] + 1),
        lambda value: value["headers"].update({"content-type": "text/event-stream"}),
        lambda value: value["request"].update(body=value["request"]["body"].replace("a", "c")),
        lambda value: value["request"].update(form="deflate"),
        lambda value: value["request"].update(path="/v1/completions"),
        lambda value: value["request"].update(method="GET"),
        lambda value: value["request"]["headers"].update({"content-type": "text/plain"}),
    ],
)
def test_an_answer_with_another_digest_or_request_is_never_replayed(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(altered(change)(lines[0]) + lines[1] + lines[2])
    told = Told()

    async def scenario(base_url: str) -> int:
        async with lane(tmp_path, pool(base_url), told) as opened, child(opened) as client:
            return (await chat(client, "a")).status_code

    with Upstream() as server:
        assert asyncio.run(scenario(server.base_url)) == 500
        assert server.asked == []
    assert len(told.of("journal-altered")) == 1


def test_kept_answers_that_nobody_asks_for_again_are_told(tmp_path: Path) -> None:
    """An evaluator that words its requests anew each time cannot be resumed from the journal: it shows."""
    fill(tmp_path)
    told = Told()

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url), told) as opened, child(opened) as client:
            assert said(await chat(client, "a")) == "a#0"

    with Upstream() as server:
        asyncio.run(scenario(server.base_url))
    assert [event["unclaimed"] for event in told.of("lane-closed")] == [2]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_more_fails_the_requests_and_stops_the_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.write
    path = tmp_path / "j.jsonl"

    def full(handle: int, data: bytes) -> int:
        """The first half of a second line fits."""
        if Path(f"/proc/self/fd/{handle}").readlink() != path or not path.stat().st_size:
            return real(handle, data)
        if len(data) < 200:
            raise OSError(number, os.strerror(number))
        return real(handle, data[: len(data) - 150])

    told = Told()

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url), told) as opened, child(opened) as client:
            assert said(await chat(client, "a")) == "a"
            monkeypatch.setattr(os, "write", full)
            failed = await chat(client, "b")
            assert failed.status_code == 507
            assert str(path) in failed.json()["error"]["message"]
            assert opened.failure is not None
            monkeypatch.setattr(os, "write", real)
            # Whatever is asked from now on would be lost.
            assert (await chat(client, "c")).status_code == 507
            assert opened.in_flight == opened.waiting == 0

    with Upstream() as server:
        asyncio.run(scenario(server.base_url))
        assert len(server.asked) == 2
        assert len(told.of("disk-full")) == 1
        assert len(journal(tmp_path)) == 1

        async def resumed(base_url: str) -> None:
            async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
                assert [said(await chat(client, text)) for text in "abc"] == list("abc")

        asyncio.run(resumed(server.base_url))
        assert len(server.asked) == 4


def test_many_lives_of_any_shape_ask_nothing_twice(tmp_path: Path) -> None:
    """Each life is ended with requests in flight: those are lost, and nothing else is."""
    chance = random.Random(11)
    texts = [chance.choice("abcdef") for _ in range(60)]
    never = threading.Event()
    answered = 0

    def script(asked: Asked) -> Reply:
        return Reply(body=numbered(asked).body, held=None if asked.number - lost < answered else never)

    async def life(base_url: str, slots: int) -> None:
        async with lane(tmp_path, pool(base_url, slots=slots)) as opened, child(opened) as client:
            asking = [asyncio.create_task(chat(client, text)) for text in texts]
            for answer in itertools.islice(asyncio.as_completed(asking), answered):
                said(await answer)
            await until(lambda: server.in_flight == slots)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def whole(base_url: str) -> list[str]:
        async with lane(tmp_path, pool(base_url, slots=3)) as opened, child(opened) as client:
            return [said(answer) for answer in await asyncio.gather(*(chat(client, text) for text in texts))]

    with Upstream(script) as server:
        lost = 0
        for slots in (1, 4, 2, 7):
            answered += 10
            asyncio.run(life(server.base_url, slots))
            assert len(journal(tmp_path)) == answered
            lost += slots
            assert len(server.asked) == answered + lost
        answered = len(texts)
        answers = asyncio.run(whole(server.base_url))
        assert len(server.asked) == len(texts) + lost
    assert Counter(answer.partition("#")[0] for answer in answers) == Counter(texts)
    assert len(set(answers)) == len(texts)


def test_echo_of_a_large_answer_is_read_back_whole(tmp_path: Path) -> None:
    noise = random.Random(3).randbytes(3 << 20).hex()

    async def scenario(base_url: str) -> str:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            return said(await chat(client, noise))

    with Upstream(echo) as server:
        assert asyncio.run(scenario(server.base_url)) == noise
        assert asyncio.run(scenario(server.base_url)) == noise
        assert len(server.asked) == 1
