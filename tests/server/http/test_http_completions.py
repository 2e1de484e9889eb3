"""Text completions: texts, lists of texts, token ids, echo and the prompt's log-probabilities."""

from __future__ import annotations

import numpy as np
import openai
import pytest

from tests.server.http import toy as toy_model

PROMPT = "<|im_start|>user\nsay:two words<|im_end|>\n<|im_start|>assistant\n"


def test_a_text_is_read_with_its_control_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="toy", prompt=PROMPT, temperature=0, max_tokens=50)
    assert answer.choices[0].text == "two words"
    assert answer.choices[0].finish_reason == "stop"


def test_ids_and_text_of_one_prompt_give_one_answer(client: openai.OpenAI) -> None:
    ids = [*toy_model.ids(b"ids"), toy_model.END]
    by_ids = client.completions.create(model="toy", prompt=ids, temperature=0, max_tokens=8, logprobs=0)
    by_text = client.completions.create(
        model="toy", prompt="ids<|im_end|>", temperature=0, max_tokens=8, logprobs=0
    )
    assert by_ids.choices[0].logprobs == by_text.choices[0].logprobs


def test_the_default_limit_is_sixteen(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="toy", prompt="x", temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_a_list_of_prompts_gives_n_choices_each_in_order(client: openai.OpenAI) -> None:
    prompts = [PROMPT, PROMPT.replace("two words", "other")]
    answer = client.completions.create(model="toy", prompt=prompts, temperature=0, max_tokens=50, n=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "two words"),
        (1, "two words"),
        (2, "other"),
        (3, "other"),
    ]


def test_a_prompt_of_a_list_is_sampled_as_it_is_alone(client: openai.OpenAI) -> None:
    def scored(prompt: str | list[str]) -> list[object]:
        answer = client.completions.create(model="toy", prompt=prompt, seed=9, n=2, max_tokens=6, logprobs=0)
        return [choice.logprobs.token_logprobs for choice in answer.choices if choice.logprobs]

    assert scored(["one", "two"]) == scored("one") + scored("two")


def test_echo_scores_every_prompt_token_but_the_first(client: openai.OpenAI) -> None:
    text = "é score me"
    answer = client.completions.create(
        model="toy", prompt=text, echo=True, logprobs=2, max_tokens=0, temperature=0
    )
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (text, "length")
    assert choice.logprobs is not None
    ids = toy_model.ids(text.encode())
    expected: list[float | None] = [None]
    for end in range(1, len(ids)):
        row = toy_model.row_after(ids[:end]).astype(np.float64)
        expected.append(float(row[ids[end]] - np.log(np.exp(row).sum())))
    assert choice.logprobs.token_logprobs == [
        value if value is None else pytest.approx(value, abs=1e-9) for value in expected
    ]
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.tokens[:3] == ["bytes:\\xc3", "bytes:\\xa9", " "]
    assert choice.logprobs.text_offset == [0, 0, *range(1, len(text))]
    assert choice.logprobs.top_logprobs is not None
    assert choice.logprobs.top_logprobs[0] is None
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs[1:] if top)


def test_echo_is_the_same_streamed_and_in_any_chunks(client: openai.OpenAI) -> None:
    prompt = "long " * 40  # more tokens than are scored in one step
    parameters = {
        "model": "toy",
        "prompt": prompt,
        "echo": True,
        "logprobs": 1,
        "max_tokens": 4,
        "temperature": 0,
    }
    whole = client.completions.create(**parameters).choices[0]
    pieces = [chunk.choices[0] for chunk in client.completions.create(**parameters, stream=True)]
    assert "".join(piece.text for piece in pieces) == whole.text
    assert whole.logprobs is not None
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        joined = [item for piece in pieces if piece.logprobs for item in getattr(piece.logprobs, name)]
        assert joined == getattr(whole.logprobs, name)
    assert len(whole.logprobs.tokens or []) == len(prompt) + 4


def test_echo_without_log_probabilities_repeats_the_prompt(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="toy", prompt=PROMPT, echo=True, temperature=0, max_tokens=3)
    assert answer.choices[0].text == PROMPT + "two"
    ids = [*toy_model.ids(b"ab"), toy_model.END]
    answer = client.completions.create(model="toy", prompt=ids, echo=True, max_tokens=0)
    assert answer.choices[0].text == "ab<|im_end|>"
