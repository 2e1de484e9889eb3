"""What the wires write is what the response models say, and no text is ever broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server import response
from server.reply import Layout, Reply, Thinking
from server.toolformat import FORMATS
from tests.server.http import toy as toy_model
from tests.server.http.running import Toy, toy_server

HERMES = next(form for form in FORMATS if form.name == "hermes")
THINKING = Thinking(b"<think>", b"</think>", opened=False)
CALL = '<tool_call>{"name": "f", "arguments": {"é": "日"}}</tool_call>'


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    both = toy_model.TOOLS + "{# <think></think> #}"
    with toy_server(context=2048, template=both) as running:
        yield running


def chat(words: str, **parameters: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "f"}}]
    message = {"role": "user", "content": f"say:{words}"}
    return {
        "model": "toy",
        "messages": [message],
        "temperature": 0,
        "max_tokens": 400,
        "tools": tools,
        **parameters,
    }


CHATS = (
    {},
    {"logprobs": True, "top_logprobs": 2},
    {"n": 2, "stop": ["x"]},
    {"max_tokens": 3},
    {"tool_choice": "none"},
    {"max_tokens": 0},
)
TEXTS = (
    {},
    {"logprobs": 1, "echo": True},
    {"n": 2, "logprobs": 0},
    {"max_tokens": 0, "prompt_logprob_ids": [[], [5], [6, 7]]},
)


def events(text: str) -> list[str]:
    lines = [line for line in text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [line.removeprefix("data: ") for line in lines[:-1]]


@pytest.mark.parametrize("parameters", CHATS, ids=str)
def test_chats_have_the_shape_of_their_models(toy: Toy, parameters: dict[str, Any]) -> None:
    url = f"{toy.url}/v1/chat/completions"
    for words in ("plain é", f"<think>hm 日</think>well {CALL}"):
        whole = httpx.post(url, json=chat(words, **parameters))
        response.ChatCompletion.model_validate_json(whole.text)
        for options in ({}, {"stream_options": {"include_usage": True}}):
            streamed = httpx.post(url, json=chat(words, stream=True, **parameters, **options))
            chunks = [response.ChatChunk.model_validate_json(event) for event in events(streamed.text)]
            assert (chunks[-1].usage is not None) == bool(options)


@pytest.mark.parametrize("parameters", TEXTS, ids=str)
def test_texts_have_the_shape_of_their_models(toy: Toy, parameters: dict[str, Any]) -> None:
    body = {"model": "toy", "prompt": [10, 200, 30], "temperature": 0, "max_tokens": 4, **parameters}
    whole = httpx.post(f"{toy.url}/v1/completions", json=body)
    response.TextCompletion.model_validate_json(whole.text)
    if "prompt_logprob_ids" not in parameters:
        for event in events(httpx.post(f"{toy.url}/v1/completions", json={**body, "stream": True}).text):
            response.TextCompletion.model_validate_json(event)


def test_everything_else_has_the_shape_of_its_model(toy: Toy) -> None:
    for path, model in (
        ("/health", response.Health),
        ("/v1/models", response.Models),
        ("/v1/models/toy", response.Model),
        ("/identity", response.Identity),
    ):
        model.model_validate_json(httpx.get(toy.url + path).text)
    response.Tokenized.model_validate_json(httpx.post(f"{toy.url}/tokenize", json={"prompt": "é"}).text)
    response.Detokenized.model_validate_json(httpx.post(f"{toy.url}/detokenize", json={"tokens": [7]}).text)
    for body in ({}, chat("x" * 3000)):
        refused = httpx.post(f"{toy.url}/v1/chat/completions", json=body)
        assert refused.status_code == 400
        response.Refusal.model_validate_json(refused.text)


TEXTS_OF_ANSWERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=12)


@given(TEXTS_OF_ANSWERS, TEXTS_OF_ANSWERS, TEXTS_OF_ANSWERS, st.lists(st.integers(1, 5), min_size=1))
def test_a_reply_cut_anywhere_says_what_the_whole_says(
    thought: str, content: str, value: str, cuts: list[int]
) -> None:
    call = json.dumps({"name": "f", "arguments": {"v": value}}, ensure_ascii=False)
    data = f"<think>{thought}</think>{content}<tool_call>{call}</tool_call>{content}".encode()

    def parts(pieces: list[bytes]) -> tuple[str, str, list[str]]:
        reply = Reply(Layout(THINKING, HERMES), ())
        text, reasoning, calls = "", "", []
        for piece in pieces:
            said = reply.feed(piece)
            thoughts = reply.take_reasoning()
            for shown in (said, thoughts):
                shown.encode()  # half a surrogate pair would raise
            text, reasoning = text + said, reasoning + thoughts
            calls += reply.take_calls()
        text += reply.finish()
        return text, reasoning + reply.take_reasoning(), [call.arguments for call in calls]

    pieces, at = [], 0
    while at < len(data):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(data[at : at + size])
        at += size
    assert parts(pieces) == parts([data])
    text, reasoning, calls = parts(pieces)
    assert reasoning == thought.strip()
    assert text == content.lstrip() + (content.lstrip() if calls else "")
    assert [json.loads(arguments) for arguments in calls] == [{"v": value}]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<:"), min_size=1, max_size=20))
def test_no_event_of_a_stream_holds_a_broken_character(toy: Toy, words: str) -> None:
    said = f"<think>{words}</think>{words}{CALL}"
    parameters: dict[str, Any] = {"stream": True, "logprobs": True}
    streamed = httpx.post(f"{toy.url}/v1/chat/completions", json=chat(said, **parameters))
    content = reasoning = arguments = ""
    scored = b""
    for event in events(streamed.text):
        for choice in json.loads(event)["choices"]:
            delta = choice["delta"]
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                arguments += call["function"]["arguments"]
            for token in (choice["logprobs"] or {"content": ()})["content"]:
                scored += bytes(token["bytes"])
    assert "\ufffd" not in (content + reasoning + arguments).replace(words, "")
    assert content == words.lstrip()
    assert reasoning == words.strip()
    assert json.loads(arguments) == {"é": "日"}
    assert scored.decode() == said
