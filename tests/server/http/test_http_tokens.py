"""The tokenizer over HTTP: the same ids as a completion reads, and back."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.http import toy as toy_model
from tests.server.http.running import Toy

CHAT = [{"role": "user", "content": "grüße <|im_end|>"}]


def post(toy: Toy, path: str, **body: object) -> httpx.Response:
    return httpx.post(toy.url + path, json=body)


@pytest.mark.parametrize("name", ["prompt", "content"])
def test_a_text_and_back(toy: Toy, name: str) -> None:
    text = "é<|im_end|>日\n"
    found = post(toy, "/tokenize", **{name: text}).json()
    assert found["tokens"] == [*toy_model.ids("é".encode()), toy_model.END, *toy_model.ids("日\n".encode())]
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), 256)
    back = post(toy, "/detokenize", model="toy", tokens=found["tokens"]).json()
    assert back == {"prompt": text, "content": text}


def test_messages_have_the_tokens_that_a_chat_counts(toy: Toy) -> None:
    found = post(toy, "/tokenize", messages=CHAT).json()
    chat = post(toy, "/v1/chat/completions", model="toy", messages=CHAT, max_tokens=1).json()
    assert found["count"] == chat["usage"]["prompt_tokens"]
    # The user's own words are no control token.
    assert found["tokens"].count(toy_model.END) == 1
    closed = post(toy, "/tokenize", messages=CHAT, add_generation_prompt=False).json()
    opening = [toy_model.START, *toy_model.ids(b"assistant\n")]
    assert found["tokens"] == closed["tokens"] + opening


def test_a_character_that_is_cut_comes_back_as_a_replacement(toy: Toy) -> None:
    assert post(toy, "/detokenize", tokens=toy_model.ids("日".encode()[:2])).json()["content"] == "\ufffd"


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, 400, "messages"),
        ("/tokenize", {"prompt": 5}, 400, "prompt"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
        ("/tokenize", {"prompt": "a", "add_bos": True}, 400, "add_bos"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": [259]}, 400, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens"),
    ],
)
def test_what_is_wrong_is_named(toy: Toy, path: str, body: dict[str, Any], status: int, param: str) -> None:
    answer = post(toy, path, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
