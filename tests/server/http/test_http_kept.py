"""The prefix cache seen from outside: what usage says was kept, and that no answer shows it."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.scheduler import Limits
from tests.server.http.running import Toy, toy_server

CHAT = "/v1/chat/completions"
LONG = "one system, many questions; " * 4


def ask(toy: Toy, words: str, **parameters: object) -> dict[str, object]:
    body = {
        "model": "toy",
        "messages": [{"role": "user", "content": words}],
        "max_tokens": 12,
        "temperature": 0,
        "logprobs": True,
        "ignore_eos": True,
        **parameters,
    }
    answer = httpx.post(toy.url + CHAT, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def cached(answer: dict[str, object]) -> int:
    usage = answer["usage"]
    assert isinstance(usage, dict)
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def prompt_tokens(answer: dict[str, object]) -> int:
    usage = answer["usage"]
    assert isinstance(usage, dict)
    return int(usage["prompt_tokens"])


def computed(toy: Toy) -> int:
    return sum(len(chunk.tokens) for batch in toy.engine.batches for chunk in batch)


def test_a_prompt_that_begins_like_an_earlier_one_is_read_from_there() -> None:
    with toy_server(slots=6, limits=Limits(kept_slots=4)) as toy:
        first = ask(toy, LONG + "a")
        again, other = ask(toy, LONG + "a"), ask(toy, LONG + "b")
        prompt = prompt_tokens(first)
        assert cached(first) == 0
        assert cached(again) == prompt - 1
        assert len(LONG) < cached(other) < prompt
        assert again["choices"] == first["choices"] != other["choices"]
        assert toy.metric("assay_prompt_tokens_cached_total") == cached(again) + cached(other)


def test_a_cold_request_takes_nothing_and_leaves_nothing() -> None:
    with toy_server(slots=6, limits=Limits(kept_slots=4)) as toy:
        warm = ask(toy, LONG)
        cold = ask(toy, LONG, cache_prompt=False)
        assert (cached(cold), cold["choices"]) == (0, warm["choices"])
        ask(toy, "never seen before " + LONG, cache_prompt=False)
        assert cached(ask(toy, "never seen before " + LONG)) == 0


def test_the_choices_of_one_request_read_their_prompt_once() -> None:
    with toy_server(slots=8, limits=Limits(kept_slots=4)) as toy:
        answer = ask(toy, LONG, n=4, max_tokens=5)
        # All of the first choice's prompt, the last token of the others', and four tokens fed back to each.
        assert computed(toy) == prompt_tokens(answer) + 3 + 4 * 4


def test_a_failed_step_leaves_nothing_behind() -> None:
    with toy_server(slots=3, limits=Limits(kept_slots=2)) as toy:
        ask(toy, LONG)
        toy.engine.breaks = True
        body = {"model": "toy", "messages": [{"role": "user", "content": LONG + "x" * 20}], "max_tokens": 3}
        assert httpx.post(toy.url + CHAT, json=body, timeout=60).status_code == 500
        assert cached(ask(toy, LONG + "x" * 20)) < len(LONG) + 20


def test_without_kept_slots_nothing_is_kept() -> None:
    with toy_server(slots=2, limits=Limits(kept_slots=0, kept_tokens=0)) as toy:
        first = ask(toy, LONG)
        again = ask(toy, LONG)
        assert (cached(again), again["choices"]) == (0, first["choices"])


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 3), st.integers(0, 400))
def test_arrival_order_and_what_is_kept_change_no_answer(
    seed: int, kept_slots: int, kept_tokens: int
) -> None:
    draw = random.Random(seed)
    stems = ["", LONG[:40], LONG]
    words = [draw.choice(stems) + "".join(draw.choices("ab", k=draw.randint(1, 6))) for _ in range(12)]
    with toy_server(slots=1, limits=Limits(kept_slots=0, kept_tokens=0)) as toy:
        alone = [ask(toy, each)["choices"] for each in words]
    draw.shuffle(order := list(range(12)))
    limits = Limits(kept_slots=kept_slots, kept_tokens=kept_tokens, prefill_alone=50, prefill_mixed=20)
    with toy_server(slots=3 + kept_slots, limits=limits) as toy, ThreadPoolExecutor(6) as pool:
        together = dict(zip(order, pool.map(lambda i: ask(toy, words[i])["choices"], order), strict=True))
    assert [together[index] for index in range(12)] == alone
