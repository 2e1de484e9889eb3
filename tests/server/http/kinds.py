"""One request of every kind that the server answers or refuses, as bytes on a connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from server.answering import LONG_TEXT
from server.body import MAX_BODY_BYTES
from tests.server.fuzz.header import Header
from tests.server.fuzz.spoken import entry, spoken
from tests.server.http.raw import CHAT, TEXT, post
from tests.server.http.toy import TOOLS

# A template that also does what Jinja imports a module for, with each message.
TEMPLATE = (
    TOOLS + "{# <think></think> #}{% set used = [messages | pprint, 'a b' | wordwrap(1), 'ä' | urlencode,"
    " strftime_now('%d %b %Y'), lipsum(n=1), messages | tojson, '%s' | format(1)] %}"
    "{% if messages[-1].content == 'undefined' %}{{ nothing.at_all }}{% endif %}"
    "{% if messages[-1].content == 'forbidden' %}{{ messages.__class__.__mro__ }}{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
OTHER = {**SCHEMA, "required": []}
TOOL = {"type": "function", "function": {"name": "go", "parameters": SCHEMA}}


def model() -> Header:
    """The model that these requests are for."""
    return spoken().with_entries(entry("tokenizer.chat_template", TEMPLATE))


@dataclass(frozen=True)
class Kind:
    """A request and the status that answers it."""

    name: str
    sent: bytes
    status: int = 200
    closes: bool = False  # the server ends the connection after it


def chat(words: str = "hello", **parameters: object) -> bytes:
    """A chat's bytes."""
    body = {"model": "small", "messages": [{"role": "user", "content": words}], "max_tokens": 4, **parameters}
    return post(CHAT, json.dumps(body).encode())


def text(prompt: object = "hello", **parameters: object) -> bytes:
    """A completion's bytes."""
    body = {"model": "small", "prompt": prompt, "max_tokens": 4, **parameters}
    return post(TEXT, json.dumps(body).encode())


def following(schema: object) -> dict[str, object]:
    """The `response_format` of a schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def plain() -> Iterator[Kind]:
    """What needs nothing but the connection."""
    for path in ("/health", "/metrics", "/identity", "/openapi.json", "/v1/models", "/v1/models/small"):
        yield Kind(path, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    yield Kind("chat", chat(temperature=0))
    yield Kind("a chat's stream", chat(stream=True, stream_options={"include_usage": True}))
    yield Kind("sampled", chat(temperature=0.7, top_p=0.9, top_k=9, min_p=0.01, seed=1))
    yield Kind("without a seed", chat())
    yield Kind(
        "penalties", chat(presence_penalty=1, frequency_penalty=1, logit_bias={"5": 3}, stop=["z", "é"])
    )
    yield Kind("log-probabilities", chat(logprobs=True, top_logprobs=5, n=3))
    yield Kind("choices in a stream", chat(n=3, stream=True))
    yield Kind("tools", chat(tools=[TOOL]))
    yield Kind("variables of the template", chat(chat_template_kwargs={"enable_thinking": False}))
    yield Kind("a completion", text())
    yield Kind("a completion's stream", text(stream=True, n=2, logprobs=2))
    yield Kind("ids", text([5, 6, 7], echo=True, logprobs=2))
    yield Kind("prompts", text(["a", "b"], max_tokens=0))
    yield Kind("words in many scripts", text("ä Ω 漢字 😀 \u0301"))
    yield Kind("tokenize", post("/tokenize", b'{"prompt": "hello"}'))
    messages = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
    yield Kind("tokenize messages", post("/tokenize", messages))
    long = json.dumps({"prompt": "x" * LONG_TEXT}).encode()
    yield Kind("tokenize at length", post("/tokenize", long))
    yield Kind("detokenize", post("/detokenize", b'{"tokens": [5, 6, 1]}'))


def refused() -> Iterator[Kind]:
    """What is refused."""
    yield Kind("no such path", b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404)
    yield Kind("no such model", b"GET /v1/models/other HTTP/1.1\r\nHost: x\r\n\r\n", 404)
    yield Kind("another method", b"DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n", 405)
    yield Kind("no JSON", post(CHAT, b"{"), 400)
    yield Kind("no UTF-8", post(CHAT, b"\xff"), 400)
    yield Kind("a lone surrogate", post(CHAT, b'{"model": "\\ud800"}'), 400)
    yield Kind("a number past all", post(CHAT, b'{"seed": 1' + b"0" * 5000 + b"}"), 400)
    yield Kind("a slip", chat(temperatur=1), 400)
    yield Kind("a wrong type", chat(temperature="1", n=0, stop=[1], tools=[{"type": "function"}]), 400)
    yield Kind("no messages", chat(messages=[]), 400)
    yield Kind("a role that the template refuses", chat(messages=[{"role": "function", "content": "x"}]), 400)
    yield Kind("a template's undefined name", chat("undefined"), 400)
    yield Kind("a template's forbidden name", chat("forbidden"), 400)
    yield Kind("a schema that is none", chat(response_format=following(3)), 400)
    yield Kind("past the context", chat("x" * 300), 400)
    yield Kind("an id past the vocabulary", post("/detokenize", b'{"tokens": [99999]}'), 400)
    yield Kind("compressed", post(CHAT, b"{}", "Content-Encoding: gzip"), 415)
    yield Kind("a form", post(CHAT, b"{}").replace(b"application/json", b"text/plain"), 415)
    yield Kind("no HTTP", b"nonsense\r\n\r\n", 400, closes=True)
    yield Kind("a body too large", post(CHAT, b"", length=MAX_BODY_BYTES + 1), 413, closes=True)
    yield Kind("a head too large", b"GET / HTTP/1.1\r\nx: " + b"y" * (1 << 17), 431, closes=True)


def grammars() -> Iterator[Kind]:
    """What needs a grammar that may not have been seen."""
    yield Kind("JSON", chat(response_format={"type": "json_object"}))
    yield Kind("a schema", chat(response_format=following(SCHEMA), temperature=0))
    yield Kind("a schema, streamed", chat(response_format=following(OTHER), stream=True))
    yield Kind("a tool that must be called", chat(tools=[TOOL], tool_choice="required"))
