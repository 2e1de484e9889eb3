"""Continuous batching seen from outside: joining, leaving, waiting, failing."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from server import generation
from server.sampling import Ids, Sampler, TokenLogprob
from server.scheduler import Limits
from tests.server.http.running import Toy, toy_server, wait_for

CHAT = "/v1/chat/completions"
Row = NDArray[np.float32]


def asked(words: str, **parameters: object) -> dict[str, object]:
    return {"model": "toy", "messages": [{"role": "user", "content": words}], "temperature": 0, **parameters}


def ask(toy: Toy, words: str, **parameters: object) -> httpx.Response:
    return httpx.post(toy.url + CHAT, json=asked(words, **parameters), timeout=60)


def running(toy: Toy) -> float:
    return toy.metric("assay_requests_running")


def waiting(toy: Toy) -> float:
    return toy.metric("assay_requests_waiting")


def test_answers_do_not_depend_on_what_runs_beside_them() -> None:
    words = [f"prompt {number} " + "x" * (number * 7 % 90) for number in range(16)]
    body = {"max_tokens": 30, "logprobs": True, "top_logprobs": 3, "ignore_eos": True}
    seeded = {"temperature": 0.8, "seed": 4}

    def one(toy: Toy, number: int) -> object:
        extra = seeded if number % 2 else {}
        return ask(toy, words[number], **body, **extra).json()["choices"]

    with toy_server(slots=4) as toy:
        alone = [one(toy, number) for number in range(16)]
    with toy_server(slots=8, limits=Limits(prefill_alone=32, prefill_mixed=40)) as toy:
        toy.engine.gate.clear()
        with ThreadPoolExecutor(16) as pool:
            answers = [pool.submit(one, toy, number) for number in range(16)]
            wait_for(lambda: running(toy) + waiting(toy) == 16)
            toy.engine.gate.set()
            beside = [answer.result() for answer in answers]
        assert max(len(batch) for batch in toy.engine.batches) > 4, "they never ran together"
    assert alone == beside


def test_prompts_are_read_in_chunks_beside_answers_under_way() -> None:
    with toy_server(slots=2, limits=Limits(prefill_alone=512, prefill_mixed=16)) as toy:
        toy.engine.gate.clear()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(ask, toy, "first", max_tokens=40, ignore_eos=True)
            assert toy.engine.stepping.wait(20)
            second = pool.submit(ask, toy, "y" * 150, max_tokens=2)
            wait_for(lambda: waiting(toy) == 1)
            toy.engine.gate.set()
            assert first.result().status_code == second.result().status_code == 200
        beside = [batch for batch in toy.engine.batches if len(batch) == 2]
        sizes = [max(len(chunk.tokens) for chunk in batch) for batch in beside]
        assert max(sizes) == 16
        assert sizes.count(16) >= 9
        # Whoever was under way got a token at each of those steps.
        assert all(min(len(chunk.tokens) for chunk in batch) == 1 for batch in beside)


def test_more_choices_than_slots_take_turns() -> None:
    with toy_server(slots=2) as toy:
        choices = ask(toy, "say:turn", n=7).json()["choices"]
        assert [choice["message"]["content"] for choice in choices] == ["turn"] * 7
        assert max(len(batch) for batch in toy.engine.batches) == 2


def test_a_full_queue_is_a_429_that_says_when_to_come_back() -> None:
    with toy_server(slots=1, limits=Limits(waiting=2)) as toy:
        toy.engine.gate.clear()
        with ThreadPoolExecutor(4) as pool:
            under_way = pool.submit(ask, toy, "say:one")
            wait_for(lambda: running(toy) == 1)
            queued = [pool.submit(ask, toy, "say:two") for _ in range(2)]
            wait_for(lambda: waiting(toy) == 2)
            refused = ask(toy, "say:three")
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["type"] == "rate_limit_error"
            toy.engine.gate.set()
            assert [each.result().status_code for each in (under_way, *queued)] == [200] * 3
        assert ask(toy, "say:again").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_slot_within_a_step(stream: bool) -> None:
    with toy_server(slots=1, context=4096) as toy:
        toy.engine.gate.clear()
        with httpx.Client(timeout=httpx.Timeout(60, read=0.5)) as client, pytest.raises(httpx.ReadTimeout):
            client.post(toy.url + CHAT, json=asked("gone", ignore_eos=True, max_tokens=4000, stream=stream))
        before = len(toy.engine.batches)
        # The server has seen the connection close once it has counted the answer nobody reads.
        wait_for(lambda: 'status="499"' in httpx.get(f"{toy.url}/metrics").text)
        toy.engine.gate.set()
        assert ask(toy, "say:next").json()["choices"][0]["message"]["content"] == "next"
        first = next(i for i, batch in enumerate(toy.engine.batches) if i > before and batch[0].position == 0)
        assert first - before <= 1
        assert toy.metric('assay_requests_total{route="/v1/chat/completions",status="499"}') == 1


def test_a_client_that_leaves_amid_its_stream_frees_its_slot() -> None:
    with toy_server(slots=1, context=8192) as toy:
        with (
            httpx.Client() as client,
            client.stream(
                "POST", toy.url + CHAT, json=asked("x", ignore_eos=True, max_tokens=8000, stream=True)
            ) as answer,
        ):
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            assert running(toy) == 1
        toy.wait_idle()
        assert toy.metric("assay_generation_tokens_total") < 8000


def test_a_client_that_waits_and_leaves_gives_up_its_place() -> None:
    with toy_server(slots=1) as toy:
        toy.engine.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(ask, toy, "say:one")
            wait_for(lambda: running(toy) == 1)
            with (
                httpx.Client(timeout=httpx.Timeout(60, read=0.3)) as client,
                pytest.raises(httpx.ReadTimeout),
            ):
                client.post(toy.url + CHAT, json=asked("say:never", n=3))
            wait_for(lambda: waiting(toy) == 0)
            toy.engine.gate.set()
            assert under_way.result().status_code == 200
        assert all(len(batch) == 1 for batch in toy.engine.batches)


def test_a_failing_engine_ends_the_requests_and_not_the_server(caplog: pytest.LogCaptureFixture) -> None:
    with toy_server() as toy:
        toy.engine.breaks = True
        failed = ask(toy, "say:x")
        assert failed.status_code == 500
        assert failed.json()["error"]["type"] == "server_error"
        assert "the toy was told to break" in caplog.text
        assert "told to break" not in failed.text
        assert ask(toy, "say:alive").json()["choices"][0]["message"]["content"] == "alive"
        assert toy.metric("assay_engine_errors_total") == 1
        toy.wait_idle()


def test_a_failure_amid_a_stream_is_an_event_of_the_stream() -> None:
    with toy_server() as toy, httpx.Client() as client:
        toy.engine.read = threading.Event()
        body = asked("say:" + "long " * 30, stream=True)
        with client.stream("POST", toy.url + CHAT, json=body) as answer:
            assert answer.status_code == 200
            toy.engine.read.set()
            rest = [line for line in answer.iter_lines() if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["type"] == "server_error"
        assert "data: [DONE]" not in rest


@pytest.mark.parametrize(
    "failure", [OSError(24, "Too many open files"), MemoryError(), KeyError(3)], ids=type
)
@pytest.mark.parametrize("where", ["choose", "prompt"])
def test_an_answer_that_fails_on_its_row_ends_its_request_and_no_other(
    where: str, failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = {"max_tokens": 30, "temperature": 0.9, "seed": 3, "ignore_eos": True}
    choose, score = Sampler.choose, generation.token_logprob

    def chosen(self: Sampler, logits: Row, argmax: int, allowed: Ids | None = None) -> int:
        if self._sampling.top_k == 77:
            raise failure
        return choose(self, logits, argmax, allowed)

    def scored(logits: Row, token: int, top: int) -> TokenLogprob:
        if top == 7:
            raise failure
        return score(logits, token, top)

    with toy_server(slots=5) as toy, ThreadPoolExecutor(4) as pool:
        alone = [ask(toy, f"beside {number}", **whole).json()["choices"] for number in range(3)]
        monkeypatch.setattr(Sampler, "choose", chosen)
        monkeypatch.setattr(generation, "token_logprob", scored)
        toy.engine.gate.clear()
        beside = [pool.submit(ask, toy, f"beside {number}", **whole) for number in range(3)]
        if where == "choose":
            failing = pool.submit(ask, toy, "fails", top_k=77, n=2, **{**whole, "temperature": 1})
        else:
            body = {"model": "toy", "prompt": "fails", "logprobs": 7, "echo": True, "n": 2, "max_tokens": 9}
            failing = pool.submit(httpx.post, f"{toy.url}/v1/completions", json=body, timeout=60)
        wait_for(lambda: running(toy) + waiting(toy) == 5)
        toy.engine.gate.set()
        failed = failing.result()
        assert failed.status_code == 500
        assert failed.json()["error"]["type"] == "server_error"
        assert "answer" in failed.json()["error"]["message"]
        assert [each.result().json()["choices"] for each in beside] == alone
        toy.wait_idle()
        assert toy.metric("assay_engine_errors_total") == 0
        assert "Traceback" in caplog.text
        assert ask(toy, "say:alive").json()["choices"][0]["message"]["content"] == "alive"


def test_an_idle_engine_thread_sleeps_in_one_wait() -> None:
    with toy_server() as toy:
        ask(toy, "say:warm")
        toy.wait_idle()
        thread = next(thread for thread in threading.enumerate() if thread.name == "engine")
        waits = set()
        for _ in range(20):
            frame = sys._current_frames()[thread.ident or 0]
            assert frame.f_code.co_name == "wait"
            # Each wait makes a lock of its own: polling would show several.
            waits.add(id(frame.f_locals["waiter"]))
            time.sleep(0.01)
        assert len(waits) == 1
