"""Never more in flight than the target's slots and the lane's grant, and every slot comes back once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import Told, chat, child, lane, pool, said, until
from scripted_target import Asked, Reply, Upstream, completion, echo

from assay.errors import PrerequisiteError, RunError
from assay.gateway import Gateway
from assay.gateway import asking as asking_module
from assay.gateway.descriptors import make_room
from assay.gateway.journal import Journal, Place
from assay.gateway.message import Answer, Request
from assay.gateway.pool import Line, Slot

NOWHERE = "http://127.0.0.1:1/v1"


def test_the_server_never_has_more_in_flight_than_its_slots_over_all_lanes(tmp_path: Path) -> None:
    release = threading.Event()

    async def scenario(base_url: str) -> None:
        at = pool(base_url, slots=3)
        async with Gateway(Told()) as gateway, contextlib.AsyncExitStack() as stack:
            lanes = [gateway.open(job, at, tmp_path / f"{job}.jsonl") for job in ("a", "b")]
            clients = [await stack.enter_async_context(child(opened)) for opened in lanes]
            asking = [asyncio.create_task(chat(clients[number % 2], str(number))) for number in range(40)]
            await until(lambda: server.in_flight == 3 and sum(lane.waiting for lane in lanes) == 37)
            assert at.in_flight == sum(lane.in_flight for lane in lanes) == 3
            release.set()
            answers = [said(answer) for answer in await asyncio.gather(*asking)]
            assert answers == [str(number) for number in range(40)]
            assert at.in_flight == 0

    def script(asked: Asked) -> Reply:
        return Reply(body=echo(asked).body, held=release)

    with Upstream(script) as server:
        asyncio.run(scenario(server.base_url))
        assert server.most_in_flight == 3


def test_an_answers_slot_comes_back_only_once_it_is_on_the_disk(tmp_path: Path) -> None:
    """So that a kill loses at most as many answers as there are slots, however slow the disk is."""
    keep = Journal.keep

    async def scenario(base_url: str) -> None:
        disk = asyncio.Event()

        def late(journal: Journal, request: Request, answer: Answer) -> asyncio.Future[Place]:
            async def kept() -> Place:
                await disk.wait()
                return await keep(journal, request, answer)

            return asyncio.ensure_future(kept())

        at = pool(base_url, slots=2)
        with mock.patch.object(Journal, "keep", late):
            async with lane(tmp_path, at) as opened, child(opened) as client:
                asking = [asyncio.create_task(chat(client, str(number))) for number in range(6)]
                await until(lambda: len(server.asked) == 2 and server.in_flight == 0)
                await asyncio.sleep(0.1)
                assert (len(server.asked), opened.in_flight, opened.waiting) == (2, 2, 4)
                disk.set()
                answers = [said(answer) for answer in await asyncio.gather(*asking)]
                assert answers == [str(number) for number in range(6)]
        assert at.in_flight == 0

    with Upstream(echo) as server:
        asyncio.run(scenario(server.base_url))


def test_a_lanes_limit_holds_when_it_is_changed_under_way(tmp_path: Path) -> None:
    """Raised, more go; lowered below what is in flight, nothing is cut off and nothing more goes."""
    steps = [threading.Event() for _ in range(8)]

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url, slots=8)) as opened, child(opened) as client:
            opened.limit = 2
            asking = [asyncio.create_task(chat(client, str(number))) for number in range(8)]
            await until(lambda: server.in_flight == 2 and opened.waiting == 6)
            opened.limit = 5
            await until(lambda: server.in_flight == 5 and opened.waiting == 3)
            opened.limit = 1
            assert (opened.limit, opened.in_flight) == (1, 5)
            for left, step in zip((4, 3, 2, 1), steps, strict=False):
                step.set()
                await until(lambda left=left: bool(opened.in_flight == left))
                assert opened.waiting == 3
            assert len(server.asked) == 5
            opened.limit = 0
            steps[4].set()
            await until(lambda: opened.in_flight == 0)
            assert opened.waiting == 3
            opened.limit = 8
            await until(lambda: server.in_flight == 3)
            for step in steps:
                step.set()
            assert len({said(answer) for answer in await asyncio.gather(*asking)}) == 8
            assert opened.in_flight == opened.waiting == 0

    with Upstream(lambda asked: Reply(body=echo(asked).body, held=steps[asked.number])) as server:
        asyncio.run(scenario(server.base_url))
        assert server.most_in_flight == 5


def test_a_pools_endpoints_share_the_work_and_the_slots(tmp_path: Path) -> None:
    release = threading.Event()

    async def scenario(*base_urls: str) -> None:
        async with lane(tmp_path, pool(*base_urls, slots=4)) as opened, child(opened) as client:
            asking = [asyncio.create_task(chat(client, str(number))) for number in range(12)]
            await until(lambda: first.in_flight == second.in_flight == 2 and opened.waiting == 8)
            release.set()
            assert len({said(answer) for answer in await asyncio.gather(*asking)}) == 12

    def script(asked: Asked) -> Reply:
        return Reply(body=echo(asked).body, held=release)

    with Upstream(script) as first, Upstream(script) as second:
        asyncio.run(scenario(first.base_url, second.base_url))
        assert first.most_in_flight + second.most_in_flight <= 8
        assert len(first.asked) + len(second.asked) == 12
        assert min(len(first.asked), len(second.asked)) >= 2


def test_a_child_that_goes_away_frees_its_slot_and_ends_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    # Time for a busy machine's stand-in to notice: until then, the slot is not another's.
    monkeypatch.setattr(asking_module, "NOTICED_S", 1.5)

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url, slots=1)) as opened, child(opened) as client:
            first = asyncio.create_task(chat(client, "first"))
            await until(lambda: server.in_flight == 1)
            second = asyncio.create_task(chat(client, "second"))
            third = asyncio.create_task(chat(client, "third"))
            await until(lambda: opened.waiting == 2)
            # One goes while it waits, the other while it is asked.
            second.cancel()
            await until(lambda: opened.waiting == 1)
            first.cancel()
            await until(lambda: len(server.asked) == 2 and server.left == 1)
            release.set()
            assert said(await third) == "third"
            assert opened.in_flight == opened.waiting == 0

    with Upstream(lambda asked: Reply(body=echo(asked).body, held=release)) as server:
        asyncio.run(scenario(server.base_url))
        assert [asked.json["messages"][0]["content"] for asked in server.asked] == ["first", "third"]
        assert server.most_in_flight == 1


@pytest.mark.usefixtures("quick")
def test_a_request_that_is_retried_keeps_its_place_and_not_its_slot(tmp_path: Path) -> None:
    failing, second_may = threading.Event(), threading.Event()

    async def scenario(base_url: str) -> None:
        at = pool(base_url, slots=1, retries=1)
        async with lane(tmp_path, at) as opened, child(opened) as client:
            asking = [asyncio.create_task(chat(client, "first"))]
            await until(lambda: opened.in_flight == 1)
            asking.append(asyncio.create_task(chat(client, "second")))
            await until(lambda: opened.waiting == 1)
            asking.append(asyncio.create_task(chat(client, "third")))
            await until(lambda: opened.waiting == 2)
            failing.set()
            # While the first waits to be asked again, its slot is the second's; then it is before the third.
            await until(lambda: len(server.asked) == 2 and at.waiting == 2)
            second_may.set()
            assert [said(await answer) for answer in asking] == ["first", "second", "third"]

    def script(asked: Asked) -> Reply:
        if asked.number == 0:
            return Reply(500, b"{}", held=failing)
        return Reply(body=echo(asked).body, held=second_may)

    with Upstream(script) as server:
        asyncio.run(scenario(server.base_url))
        texts = [asked.json["messages"][0]["content"] for asked in server.asked]
        assert texts == ["first", "second", "first", "third"]


def test_a_lane_that_closes_ends_what_is_in_flight_and_leaves_the_others_alone(tmp_path: Path) -> None:
    release = threading.Event()

    async def scenario(base_url: str) -> None:
        at = pool(base_url, slots=2)
        async with Gateway(told) as gateway:
            one = gateway.open("one", at, tmp_path / "one.jsonl")
            with pytest.raises(RunError, match="one is open"):
                gateway.open("one", at, tmp_path / "one.jsonl")
            two = gateway.open("two", at, tmp_path / "two.jsonl")
            async with child(one) as first, child(two) as second:
                cut = [asyncio.create_task(chat(first, text)) for text in "ab"]
                await until(lambda: server.in_flight == 2)
                going = asyncio.create_task(chat(second, "c"))
                await until(lambda: two.waiting == 1)
                await one.close()
                await one.close()
                assert [(await answer).status_code for answer in cut] == [503, 503]
                assert (await chat(first, "d")).status_code == 404
                await until(lambda: two.in_flight == 1)
                release.set()
                assert said(await going) == "c"
            again = gateway.open("one", at, tmp_path / "one.jsonl")
            async with child(again) as third:
                assert said(await chat(third, "e")) == "e"

    told = Told()
    with Upstream(lambda asked: Reply(body=echo(asked).body, held=release)) as server:
        asyncio.run(scenario(server.base_url))
        server.wait_for(lambda: server.left == 2)
    assert [(event["job"], event["unclaimed"]) for event in told.of("lane-closed")] == [
        ("one", 0),
        ("two", 0),
        ("one", 0),
    ]


def test_a_gateway_that_is_left_ends_all_its_lanes(tmp_path: Path) -> None:
    never = threading.Event()

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            cut = asyncio.create_task(chat(client, "a"))
            await until(lambda: server.in_flight == 1)
            await opened.close()
            assert (await cut).status_code == 503

    with Upstream(lambda asked: Reply(body=completion("a"), held=never)) as server:
        asyncio.run(scenario(server.base_url))
        server.wait_for(lambda: server.left == 1)


@pytest.fixture
def limit() -> Iterator[tuple[int, int]]:
    """The limit of open files, as it was again afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_lane_makes_room_for_its_connections(tmp_path: Path, limit: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, limit[1]))

    async def scenario() -> None:
        async with Gateway(Told()) as gateway:
            gateway.open("a", pool(NOWHERE, slots=10), tmp_path / "a.jsonl")
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400
            gateway.open("b", pool(NOWHERE, slots=100), tmp_path / "b.jsonl")
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256 + 2 * 110

    asyncio.run(scenario())
    refuses = pytest.raises(PrerequisiteError, match="100 requests in flight need 456 open files")
    with mock.patch("resource.getrlimit", return_value=(300, 300)), refuses as refused:
        make_room(100)
    assert "ulimit -n 456" in refused.value.next


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "give up", "answer", "answer", "limit", "turn"]),
        st.integers(0, 7),
    ),
    max_size=80,
)


@settings(max_examples=150)
@given(slots=st.integers(1, 4), doors=st.integers(1, 3), steps=STEPS)
def test_slots_are_never_lost_nor_given_twice(slots: int, doors: int, steps: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        at = pool(*(f"http://127.0.0.1:{port}/v1" for port in range(1, doors + 1)), slots=slots)
        lines = [at.join(2) for _ in range(3)]
        asking: list[asyncio.Task[Slot]] = []
        held: list[Slot] = []

        def check() -> None:
            assert at.in_flight == sum(line.in_flight for line in lines) <= slots
            assert at.in_flight == sum(door.in_flight for door in at.doors)
            assert min(line.in_flight for line in lines) >= 0

        for step, number in steps:
            line = lines[number % 3]
            if step == "ask":
                asking.append(asyncio.create_task(at.slot(line, at.ticket())))
            elif step == "give up" and asking:
                asking[number % len(asking)].cancel()
            elif step == "answer" and held:
                slot = held.pop(number % len(held))
                slot.release()
                slot.release()
            elif step == "limit":
                before = line.in_flight
                line.limit = number % 4
                assert line.in_flight <= max(before, line.limit)
            elif step == "turn":
                await turn(asking, held)
            check()
        for line in lines:
            line.limit = slots
        # Whoever still waits is served, in the end.
        for _ in itertools.count():
            await turn(asking, held)
            if not asking and not held:
                break
            for slot in held:
                slot.release()
            held.clear()
            check()
        assert at.in_flight == 0

    asyncio.run(scenario())


async def turn(asking: list[asyncio.Task[Slot]], held: list[Slot]) -> None:
    """Let the loop run, and collect the slots that were granted."""
    for _ in range(3):
        await asyncio.sleep(0)
    for task in [task for task in asking if task.done()]:
        asking.remove(task)
        if not task.cancelled():
            held.append(task.result())


def test_who_came_first_is_served_first_and_no_lane_starves() -> None:
    async def scenario() -> list[int]:
        at = pool(NOWHERE, slots=1)
        greedy, modest = at.join(1), at.join(1)
        order: list[int] = []

        async def one(line: Line, ticket: int) -> None:
            slot = await at.slot(line, ticket)
            order.append(ticket)
            await asyncio.sleep(0)
            slot.release()

        tickets = [at.ticket() for _ in range(12)]
        lines = [modest if ticket == 5 else greedy for ticket in tickets]
        await asyncio.gather(*(one(line, ticket) for line, ticket in zip(lines, tickets, strict=True)))
        return order

    assert asyncio.run(scenario()) == list(range(12))
