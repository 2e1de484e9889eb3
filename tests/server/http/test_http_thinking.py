"""Templates that think: what is thinking, what is content, and what counts where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.server.http import toy as toy_model
from tests.server.http.running import Toy, toy_server

SAID = "<think>\nfirst, é 日\n</think>\n\nthen the answer"


@pytest.fixture(
    scope="module", params=[toy_model.THINKING, toy_model.OPENED], ids=["begins itself", "opened"]
)
def toy(request: pytest.FixtureRequest) -> Iterator[Toy]:
    with toy_server(context=2048, template=request.param) as running:
        yield running


def ask(client: openai.OpenAI, words: str = SAID, **parameters: Any) -> Any:
    return client.chat.completions.create(
        model="toy",
        messages=[{"role": "user", "content": f"say:{words}"}],
        **{"temperature": 0, "max_tokens": 300, **parameters},
    )


def test_thinking_and_content_are_apart(client: openai.OpenAI) -> None:
    answer = ask(client)
    message = answer.choices[0].message
    assert message.reasoning_content == "first, é 日"
    assert message.content == "then the answer"
    assert answer.choices[0].finish_reason == "stop"


def test_the_thinking_is_counted_as_completion_and_apart(client: openai.OpenAI, toy: Toy) -> None:
    usage = ask(client).usage
    given = len("<think>\n")  # tokens, one a byte, of which the opened template has written all
    thinking = len(SAID.partition("</think>")[0].encode() + b"</think>") - given
    served = toy.service.served
    assert served is not None
    assert served.template is not None
    if served.template.source == toy_model.OPENED:
        assert usage.completion_tokens == len(SAID.encode()) - given + 1
        assert usage.completion_tokens_details.reasoning_tokens == thinking
    else:
        assert usage.completion_tokens == len(SAID.encode()) + 1
        # The mark's last byte opens the thinking, the newline after it belongs to it.
        assert usage.completion_tokens_details.reasoning_tokens == thinking + 2


def test_a_stream_says_the_same_and_leaks_no_mark(client: openai.OpenAI) -> None:
    reasoning, content, order = "", "", []
    for chunk in ask(client, stream=True):
        for choice in chunk.choices:
            thought = getattr(choice.delta, "reasoning_content", None) or ""
            said = choice.delta.content or ""
            reasoning, content = reasoning + thought, content + said
            order += ["thought"] * bool(thought) + ["said"] * bool(said)
    assert (reasoning, content) == ("first, é 日", "then the answer")
    assert order == sorted(order, reverse=True)
    assert len(order) > 10, "it came in one piece"


def test_a_stop_string_counts_only_after_the_thinking(client: openai.OpenAI) -> None:
    message = (
        ask(client, "<think>\nstop here? no\n</think>\ngo and stop here", stop=[" stop"]).choices[0].message
    )
    assert message.reasoning_content == "stop here? no"
    assert message.content == "go and"


def test_an_answer_cut_while_it_thinks_has_no_content(client: openai.OpenAI) -> None:
    answer = ask(client, max_tokens=11)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == ""
    assert "first, é 日".startswith(answer.choices[0].message.reasoning_content)


def test_a_schema_holds_for_the_content_and_leaves_the_thinking_free(client: openai.OpenAI) -> None:
    schema = {"enum": [{"a": 1}]}
    answer = ask(
        client,
        '<think>\nfree {"a": 2} words\n</think>{"a": 3}',
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    if answer.choices[0].message.model_extra.get("reasoning_content"):
        assert answer.choices[0].message.reasoning_content == 'free {"a": 2} words'
    assert json.loads(answer.choices[0].message.content) == {"a": 1}


def test_log_probabilities_cover_the_thinking_too(client: openai.OpenAI) -> None:
    answer = ask(client, logprobs=True)
    written = b"".join(bytes(item.bytes) for item in answer.choices[0].logprobs.content)
    assert SAID.encode().endswith(written)
    assert len(written) >= len(SAID.encode()) - len("<think>\n")


def test_an_answer_that_does_not_think_is_content() -> None:
    with toy_server(template=toy_model.THINKING) as toy:
        for words in ("<thi", "plain", "  <b>", "<thinking> is fun"):
            body = {
                "model": "toy",
                "messages": [{"role": "user", "content": f"say:{words}"}],
                "temperature": 0,
            }
            message = httpx.post(f"{toy.url}/v1/chat/completions", json=body).json()["choices"][0]["message"]
            assert message["content"] == words
            assert "reasoning_content" not in message


def test_a_template_that_closed_the_thinking_gives_content_only() -> None:
    closed = toy_model.TEMPLATE.replace("assistant\n' }}", "assistant\n<think>\n\n</think>\n\n' }}")
    with toy_server(template=closed) as toy:
        message_ = [{"role": "user", "content": "say:<think>\n\n</think>\n\n<think>content"}]
        body = {"model": "toy", "messages": message_, "temperature": 0}
        found = httpx.post(f"{toy.url}/v1/chat/completions", json=body).json()["choices"][0]["message"]
        assert found["content"] == "<think>content"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_the_template_takes_no_conversation_out_of_its_variables(toy: Toy, name: str) -> None:
    body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    answer = httpx.post(
        f"{toy.url}/v1/chat/completions", json={**body, "chat_template_kwargs": {name: False}}, timeout=60
    )
    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]


def test_enable_thinking_is_a_boolean(toy: Toy) -> None:
    body = {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    for value, status in ((False, 200), (True, 200), ("false", 400), (0, 400), (None, 400)):
        found = httpx.post(
            f"{toy.url}/v1/chat/completions",
            json={**body, "chat_template_kwargs": {"enable_thinking": value}},
        )
        assert found.status_code == status
        if status == 400:
            assert found.json()["error"]["param"] == "chat_template_kwargs"


def test_reasoning_effort_is_for_templates_that_read_it() -> None:
    body = {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    with toy_server(template=toy_model.EFFORT) as toy:
        url = f"{toy.url}/v1/chat/completions"
        plain = httpx.post(url, json=body).json()["usage"]["prompt_tokens"]
        low = httpx.post(url, json={**body, "reasoning_effort": "low"}).json()["usage"]["prompt_tokens"]
        assert low == plain + len("effort=low")
        assert httpx.post(url, json={**body, "reasoning_effort": "enormous"}).status_code == 400
    with toy_server() as toy:
        found = httpx.post(f"{toy.url}/v1/chat/completions", json={**body, "reasoning_effort": "low"})
        assert found.json()["error"]["code"] == "unsupported_parameter"
