"""Clients that are slow, vanish, come in crowds or are hit by a failing engine; nobody else must notice."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from server.engine import Chunk, StepResult
from server.protocol import Patience
from server.scheduler import Limits
from tests.server.http.raw import CHAT, TEXT, Line, asked, open_files, post, resident_bytes
from tests.server.http.running import Toy, toy_server, wait_for

ENDLESS = {"ignore_eos": True, "max_tokens": 60_000}


def running(toy: Toy) -> float:
    return toy.metric("assay_requests_running")


def words(toy: Toy, said: str) -> bool:
    """Whether the server answers somebody else."""
    reply = httpx.post(toy.url + CHAT, content=asked(f"say:{said}"), headers=JSON, timeout=60)
    return bool(reply.json()["choices"][0]["message"]["content"] == said)


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_is_reset_frees_its_slot_within_a_step_or_two(stream: bool) -> None:
    with toy_server(slots=1, context=65_536) as toy:
        with Line(toy) as line:
            line.send(post(CHAT, asked("gone", stream=stream, **ENDLESS)))
            wait_for(lambda: running(toy) == 1 and len(toy.engine.batches) > 3)
            toy.engine.gate.clear()
            line.reset()
        wait_for(lambda: toy.service.under_way == 0)  # the event loop has seen it
        before = len(toy.engine.batches)
        toy.engine.gate.set()
        toy.wait_idle()
        assert len(toy.engine.batches) - before <= 2
        assert words(toy, "next")


def test_a_client_that_is_reset_takes_its_pipelined_requests_along() -> None:
    with toy_server(slots=1, context=65_536) as toy:
        with Line(toy) as line:
            line.send(post(CHAT, asked("gone", stream=True, **ENDLESS)) * 3)
            wait_for(lambda: running(toy) == 1 and len(toy.engine.batches) > 3)
            line.reset()
        toy.wait_idle()
        # The ones behind the first never began.
        assert sum(batch[0].position == 0 for batch in toy.engine.batches) == 1


def test_a_client_that_is_reset_while_it_waits_gives_up_its_place() -> None:
    with toy_server(slots=1) as toy:
        toy.engine.gate.clear()
        with Line(toy) as first, Line(toy) as second:
            first.send(post(CHAT, asked("say:first")))
            wait_for(lambda: running(toy) == 1)
            second.send(post(CHAT, asked("never", n=5)))
            wait_for(lambda: toy.metric("assay_requests_waiting") == 5)
            second.reset()
            wait_for(lambda: toy.metric("assay_requests_waiting") == 0)
            toy.engine.gate.set()
            assert b"first" in first.reply().body
        assert all(len(batch) == 1 for batch in toy.engine.batches)


def test_a_reader_of_a_byte_now_and_then_stalls_nobody_and_keeps_little() -> None:
    with toy_server(slots=2, context=65_536, patience=Patience(stall_s=30)) as toy:
        before = resident_bytes()
        with Line(toy, receive_bytes=4096) as slow:
            slow.send(post(CHAT, asked("x" * 40, stream=True, logprobs=True, top_logprobs=20, **ENDLESS)))
            for number in range(8):
                assert slow.socket.recv(1)
                assert words(toy, f"beside {number}")
            assert running(toy) == 1
            steps = len(toy.engine.batches)
            # What is not read waits in the kernel's buffers, uvicorn's, and as deltas: some KB a token.
            assert resident_bytes() - before < (64 << 20) + steps * 16_384
        toy.wait_idle()


def test_a_reader_that_stopped_is_let_go_in_time() -> None:
    with toy_server(slots=1, context=65_536, patience=Patience(stall_s=0.5)) as toy:
        with Line(toy, receive_bytes=4096) as stuck:
            body = asked("x" * 40, stream=True, logprobs=True, top_logprobs=20, **ENDLESS)
            stuck.send(post(CHAT, body))
            assert stuck.socket.recv(1)
            toy.wait_idle()
            assert words(toy, "next")
        assert toy.metric("assay_generation_tokens_total") < 60_000


def test_two_hundred_connections_are_all_answered_and_all_returned() -> None:
    with toy_server(slots=8, limits=Limits(waiting=100)) as toy:
        assert words(toy, "warm")
        before = open_files()
        toy.engine.gate.clear()
        lines = [Line(toy, seconds=60) for _ in range(200)]
        for number, line in enumerate(lines):
            line.send(post(CHAT, asked(f"say:{number}")))
        # All that find no room hear so at once, also while the engine stands still.
        wait_for(lambda: toy.service.metrics.requests[CHAT, 429] == 92, 60)
        toy.engine.gate.set()
        replies = [line.reply() for line in lines]
        for number, reply in enumerate(replies):
            if reply.status == 200:
                assert json.loads(reply.body)["choices"][0]["message"]["content"] == str(number)
            else:
                assert reply.error["code"] == "queue_full"
                assert int(reply.headers["retry-after"]) >= 1
        assert [reply.status for reply in replies].count(200) == 108
        for line in lines:
            line.socket.close()
        toy.wait_idle()
        wait_for(lambda: open_files() <= before + 2)


@pytest.mark.slow
def test_two_hundred_clients_that_vanish_leave_nothing_behind() -> None:
    with toy_server(slots=4, context=65_536) as toy:
        assert words(toy, "warm")
        before, threads = open_files(), threading.active_count()
        for stream in (True, False):
            lines = [Line(toy) for _ in range(100)]
            for line in lines:
                line.send(post(CHAT, asked("gone", stream=stream, **ENDLESS)))
            wait_for(lambda: running(toy) == 4)
            for line in lines:
                line.reset()
            toy.wait_idle()
        wait_for(lambda: open_files() <= before + 2)
        assert threading.active_count() <= threads
        assert words(toy, "next")


@pytest.mark.parametrize(
    "failure", [RuntimeError("a surprise"), MemoryError(), SystemError("NULL"), KeyError(3)], ids=type
)
def test_whatever_the_engine_raises_ends_the_batch_and_not_the_server(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toy_server(slots=4, context=65_536) as toy:
        step = toy.engine.step
        armed = threading.Event()

        def breaks(chunks: list[Chunk]) -> StepResult:
            if armed.is_set() and any(chunk.position > 30 for chunk in chunks):
                armed.clear()
                raise failure
            return step(chunks)

        monkeypatch.setattr(toy.engine, "step", breaks)
        for _ in range(2):  # the second failure finds the same server
            armed.set()
            with Line(toy) as whole, Line(toy) as stream, Line(toy) as text:
                whole.send(post(CHAT, asked("y" * 40, ignore_eos=True, max_tokens=99)))
                stream.send(post(CHAT, asked("z", stream=True, ignore_eos=True, max_tokens=99)))
                text.send(post(TEXT, json.dumps({"model": "toy", "prompt": "t" * 50}).encode()))
                streamed = stream.reply()
                answers = [whole.reply(), text.reply()]
            failed = [reply for reply in (streamed, *answers) if b"server_error" in reply.body]
            assert failed
            for reply in failed:
                if reply.headers["content-type"].startswith("text/event-stream"):
                    last = reply.body.decode().strip().split("\n\n")[-1]
                    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
                    assert b"[DONE]" not in reply.body
                else:
                    assert reply.status == 500
                    assert "surprise" not in str(reply.error)
            toy.wait_idle()
        assert toy.metric("assay_engine_errors_total") == 2
        assert words(toy, "alive")
        assert httpx.get(f"{toy.url}/health").status_code == 200


def test_a_failure_outside_a_step_ends_what_was_there_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with toy_server(slots=2) as toy:
        assert toy.service.served is not None
        scheduler = toy.service.served.scheduler
        whole = scheduler._retire
        failures = [1, 1]

        def breaks(ended: set[int]) -> None:
            if ended and failures:
                failures.pop()
                raise RuntimeError("outside a step")
            whole(ended)

        monkeypatch.setattr(scheduler, "_retire", breaks)
        for _ in range(2):
            reply = httpx.post(toy.url + CHAT, content=asked("say:x"), headers=JSON, timeout=20)
            assert reply.status_code == 500
            assert reply.json()["error"]["type"] == "server_error"
        assert words(toy, "alive")
        toy.wait_idle()


def test_a_jumping_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with toy_server() as toy:
        now = time.time()
        for jump in (-1e9, 1e9, -now, 0.5):
            monkeypatch.setattr(time, "time", lambda at=now + jump: at)
            assert words(toy, "steady")


@pytest.mark.slow
def test_a_crowd_with_faults_among_it_gets_its_own_answers() -> None:
    """Sixty clients in turn, some reset, some slow, some refused: every whole answer is the asker's."""
    with toy_server(slots=4, context=4096, limits=Limits(waiting=20)) as toy:

        def one(number: int) -> str:
            with Line(toy, seconds=60) as line:
                kind = number % 5
                if kind == 0:
                    line.send(post(CHAT, asked("gone", stream=True, ignore_eos=True)))
                    line.socket.recv(1)
                    line.reset()
                    return "reset"
                if kind == 1:
                    line.send(post(CHAT, b"{"))
                    return str(line.reply().status)
                request = post(CHAT, asked(f"say:mine {number}"))
                if kind == 2:
                    for begin in range(0, len(request), 40):
                        line.send(request[begin : begin + 40])
                else:
                    line.send(request)
                reply = line.reply()
                if reply.status == 429:
                    return "429"
                assert json.loads(reply.body)["choices"][0]["message"]["content"] == f"mine {number}"
                return "own"

        with ThreadPoolExecutor(30) as pool:
            ends = list(pool.map(one, range(60)))
        assert ends.count("reset") == ends.count("400") == 12
        assert ends.count("own") + ends.count("429") == 36
        assert "own" in ends
        toy.wait_idle()


def test_connections_that_say_nothing_cost_nothing_once_they_close(toy: Toy) -> None:
    before = open_files()
    sockets = [socket.create_connection(("127.0.0.1", int(toy.url.rpartition(":")[2]))) for _ in range(150)]
    assert words(toy, "beside")
    for each in sockets:
        each.close()
    wait_for(lambda: open_files() <= before + 4)
