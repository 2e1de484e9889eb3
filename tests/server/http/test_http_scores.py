"""`prompt_logprob_ids`: exact log-probabilities of named ids at every prompt position."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.server.http import toy as toy_model
from tests.server.http.running import Toy, toy_server

TEXT = "/v1/completions"


def ask(toy: Toy, **parameters: object) -> httpx.Response:
    body = {"model": "toy", "max_tokens": 0, "temperature": 0, **parameters}
    return httpx.post(toy.url + TEXT, json=body, timeout=120)


def expected(prompt: list[int], ids: list[list[int]]) -> tuple[list[int | None], list[list[float]]]:
    tops: list[int | None] = [None]
    scores: list[list[float]] = [[]]
    for end in range(1, len(prompt)):
        row = toy_model.row_after(prompt[:end]).astype(np.float64)
        log = row - row.max() - np.log(np.exp(row - row.max()).sum())
        tops.append(int(row.argmax()))
        scores.append([float(np.float32(log[token])) for token in ids[end]])
    return tops, scores


def test_named_ids_are_scored_exactly_as_float32(toy: Toy) -> None:
    prompt = toy_model.ids(b"score these words, if you please")
    random = np.random.default_rng(5)
    ids = [
        [],
        *(random.integers(0, toy_model.VOCABULARY, count % 5).tolist() for count in range(1, len(prompt))),
    ]
    found = ask(toy, prompt=prompt, prompt_logprob_ids=ids).json()["choices"][0]["prompt_scores"]
    tops, scores = expected(prompt, ids)
    assert found["top_ids"] == tops
    assert found["logprobs"] == scores


def test_each_prompt_of_a_list_has_its_own(toy: Toy) -> None:
    prompts = [toy_model.ids(b"one"), toy_model.ids(b"another")]
    ids = [[[], *([7, 8] for _ in prompt[1:])] for prompt in prompts]
    choices = ask(toy, prompt=prompts, prompt_logprob_ids=ids).json()["choices"]
    for prompt, wanted, choice in zip(prompts, ids, choices, strict=True):
        assert (choice["prompt_scores"]["top_ids"], choice["prompt_scores"]["logprobs"]) == expected(
            prompt, wanted
        )


def test_they_agree_with_echoed_log_probabilities(client: openai.OpenAI) -> None:
    prompt = toy_model.ids(b"the same")
    choice = client.completions.create(
        model="toy",
        prompt=prompt,
        max_tokens=0,
        echo=True,
        logprobs=1,
        extra_body={"prompt_logprob_ids": [[], *([token] for token in prompt[1:])]},
    ).choices[0]
    assert choice.logprobs is not None
    echoed = choice.logprobs.token_logprobs or []
    named = (choice.model_extra or {})["prompt_scores"]["logprobs"]
    assert named[1:] == [[float(np.float32(value))] for value in echoed[1:]]


def test_thousands_of_positions_in_steps_of_bounded_size() -> None:
    with toy_server(context=4096) as toy:
        prompt = toy_model.ids(bytes(np.random.default_rng(1).integers(0, 256, 3000, np.uint8)))
        found = ask(toy, prompt=prompt, prompt_logprob_ids=[[], *([1, 2] for _ in prompt[1:])])
        assert len(found.json()["choices"][0]["prompt_scores"]["top_ids"]) == 3000
        assert max(len(chunk.tokens) for batch in toy.engine.batches for chunk in batch) == 64
        # What was read before is no excuse for not computing the rows.
        again = ask(toy, prompt=prompt, prompt_logprob_ids=[[], *([1, 2] for _ in prompt[1:])])
        assert again.json()["choices"] == found.json()["choices"]


@pytest.mark.parametrize(
    "ids",
    [
        [[], [1]],
        [[], [1], [2], [3]],
        [[5], [1], [2]],
        [[], [259], [2]],
        [[], [2**40], [2]],
        [[], [2**70], [2]],
        [[], [-1], [2]],
        [[], ["x"], [2]],
        [[], 1, 2],
        [[[], [1], [2]], [[], [1], [2]]],
        [[], [[1]], [2]],
        [],
        "all",
    ],
)
def test_another_shape_or_a_wrong_id_is_a_400(toy: Toy, ids: object) -> None:
    answer = ask(toy, prompt=[10, 11, 12], prompt_logprob_ids=ids)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "prompt_logprob_ids"


@pytest.mark.parametrize("more", [{"stream": True}, {"n": 2}])
def test_neither_streamed_nor_for_several_choices(toy: Toy, more: dict[str, Any]) -> None:
    answer = ask(toy, prompt=[10, 11], prompt_logprob_ids=[[], [1]], **more)
    assert answer.json()["error"]["param"] == "prompt_logprob_ids"


def test_too_many_ids_are_refused(toy: Toy) -> None:
    many = [[], *([7] * 9000 for _ in range(99))]
    answer = ask(toy, prompt=[10] * 100, prompt_logprob_ids=many)
    assert "at most" in answer.json()["error"]["message"]
