"""Over HTTP at temperature 0: the same bytes alone and in any company and order, cached or not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.http.running import Command, command_server

pytestmark = pytest.mark.slow

OPENINGS = (
    "The ferry left the harbour",
    "The ferry left the harbour a little after seven, when the fog",
    "def reverse(items):\n    ",
    "Dear Mrs Okafor,\n\nthank you for your letter",
)
STREAM_TOKENS = 10


@pytest.fixture(scope="module", params=["1", "2"], ids=["1-thread", "2-threads"])
def server(
    request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    folder = tmp_path_factory.mktemp("determinism")
    with command_server(
        model_path, folder, "--threads", request.param, "--slots", "8", "--context", "512", "--name", "m"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def truth() -> dict[str, str]:
    """What each question's first answer was, whichever server gave it."""
    return {}


def question(opening: str, repeated: int, words: int, cached: bool) -> dict[str, object]:
    return {
        "model": "m",
        "prompt": " ".join([opening] * repeated) + " and so" * words,
        "max_tokens": STREAM_TOKENS,
        "temperature": 0,
        "logprobs": 5,
        "cache_prompt": cached,
    }


questions = st.builds(
    question, st.sampled_from(OPENINGS), st.integers(1, 12), st.integers(0, 6), st.booleans()
)


def choices(client: httpx.Client, asked: dict[str, object]) -> str:
    answer = client.post("/v1/completions", json=asked)
    assert answer.status_code == 200, answer.text
    return json.dumps(answer.json()["choices"])


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(questions, min_size=2, max_size=12), seed=st.integers(0, 999))
def test_answers_and_logprobs_are_the_same_bytes_in_any_company(
    server: Command, truth: dict[str, str], asked: list[dict[str, object]], seed: int
) -> None:
    with httpx.Client(base_url=server.url, timeout=120) as client:
        for each in asked:
            alone = {**each, "cache_prompt": False}
            truth.setdefault(str(alone["prompt"]), choices(client, alone))
        order = [*asked, *asked]
        random.Random(seed).shuffle(order)
        with ThreadPoolExecutor(len(order)) as pool:
            answers = list(pool.map(lambda each: choices(client, each), order))
    for each, answer in zip(order, answers, strict=True):
        assert answer == truth[str(each["prompt"])]


def test_a_chat_is_the_same_bytes_beside_others(server: Command) -> None:
    @cache
    def chat(index: int) -> dict[str, object]:
        return {
            "model": "m",
            "messages": [{"role": "user", "content": f"Count from {index} to {index + 9}."}],
            "max_tokens": 12,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 3,
        }

    def ask(client: httpx.Client, index: int) -> str:
        answer = client.post("/v1/chat/completions", json=chat(index))
        assert answer.status_code == 200, answer.text
        return json.dumps(answer.json()["choices"])

    with httpx.Client(base_url=server.url, timeout=120) as client:
        alone = [ask(client, index) for index in range(6)]
        with ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda index: ask(client, index % 6), range(12)))
    assert together == alone + alone
