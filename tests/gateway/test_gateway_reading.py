"""What counts as an answer: nothing that was cut, nothing that says it failed, whatever its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_target import completion, streamed

from assay.gateway.reading import Reading, read

JSON, STREAM = "application/json", "text/event-stream; charset=utf-8"
HOSTILE = 'data: [DONE] "finish_reason": "stop" "usage" "error" \u0085 \u2028 \n\ndata: {'


@given(st.sampled_from([JSON, STREAM, "", "text/html"]), st.binary(max_size=300))
def test_reading_never_fails(kind: str, body: bytes) -> None:
    read(kind, body)
    read(kind, streamed("a b")[:200] + body)


@given(st.data(), st.text(max_size=40), st.booleans())
def test_a_stream_that_was_cut_is_no_answer(data: st.DataObject, text: str, done: bool) -> None:
    whole = streamed(text + HOSTILE.replace(" ", "_"), done=done)
    assert read(STREAM, whole) == Reading("", 7, 3)
    # From the event that ends the last choice on, all words are there.
    ended = whole.index(b"\n", whole.index(b'"finish_reason": "stop"'))
    cut = whole[: data.draw(st.integers(0, ended - 1))]
    assert read(STREAM, cut.removesuffix(b"}")).fault
    assert read(STREAM, cut.removesuffix(b"}") + b"\n\n").fault


@given(st.data(), st.text(max_size=40))
def test_json_that_was_cut_is_no_answer(data: st.DataObject, text: str) -> None:
    whole = completion(text)
    assert read(JSON, whole) == Reading("", 7, 3)
    assert read(JSON, whole[: data.draw(st.integers(0, len(whole) - 1))]).fault


def events(*values: Any, end: str = "") -> bytes:
    return ("".join(f"event: x\r\ndata: {json.dumps(value)}\r\n\r\n" for value in values) + end).encode()


DONE = "data: [DONE]\n\n"
CHOICE = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
OPEN = {"choices": [{"index": 1, "delta": {"content": "a"}, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Usage in each event, as some servers send it: the last one counts.
        (
            events(
                {**CHOICE, "usage": {"prompt_tokens": 5, "completion_tokens": 1}},
                {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}},
                end=DONE,
            ),
            Reading("", 5, 9),
        ),
        (events({**CHOICE, "usage": None}, end=DONE), Reading()),
        (events({**CHOICE, "usage": {"prompt_tokens": "5", "completion_tokens": -1}}, end=DONE), Reading()),
        (events({**CHOICE, "usage": {"prompt_tokens": True}}, end=DONE), Reading()),
        # The newer protocols: their names of the counts, and their ends.
        (
            events(
                {"type": "message_start", "message": {"usage": {"input_tokens": 4, "output_tokens": 1}}},
                {"type": "message_delta", "usage": {"output_tokens": 8}},
                {"type": "message_stop"},
            ),
            Reading("", 4, 8),
        ),
        (
            events(
                {"type": "response.created", "response": {"usage": None}},
                {
                    "type": "response.completed",
                    "response": {"error": None, "usage": {"input_tokens": 4, "output_tokens": 8}},
                },
            ),
            Reading("", 4, 8),
        ),
        (events(CHOICE), Reading()),
        (events(CHOICE, {"error": None, "choices": []}, end=DONE), Reading()),
    ],
)
def test_streams_that_are_whole(body: bytes, expected: Reading) -> None:
    assert read(STREAM, body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b": only a comment\n\n",
        b"[DONE]",
        events(OPEN),
        events(CHOICE, OPEN),
        events({"type": "message_start", "message": {}}),
        events({"type": "response.failed", "response": {"error": {"message": "x"}}}),
        events({"error": {"message": "overloaded"}}, end=DONE),
        events(CHOICE, {"error": "overloaded"}, end=DONE),
        b'data: {"choices": [' + b"[" * 100_000,
    ],
)
def test_streams_that_are_none(body: bytes) -> None:
    assert read(STREAM, body).fault


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"ok"', b'{"error": {"message": "overloaded"}}', b"{"]
)
def test_json_that_is_no_answer(body: bytes) -> None:
    assert read(JSON, body).fault


def test_json_by_any_name_is_an_answer() -> None:
    assert read("text/plain", completion("a")) == Reading("", 7, 3)
    assert read(JSON, b'{"error": null, "data": []}') == Reading()
