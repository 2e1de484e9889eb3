"""What an answer says: the same whole and in pieces, whatever the protocol, and never an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.reproduce.said import Choice, Said, differences, said

CHAT, PLAIN, NEWER, BLOCKS = "/v1/chat/completions", "/v1/completions?x=1", "/v1/responses", "/v1/messages"
STREAM = "text/event-stream; charset=utf-8"


def whole(path: str, value: object) -> Said:
    return said(path, "application/json", json.dumps(value).encode())


def stream(path: str, *events: object, end: str = "\n\n") -> Said:
    lines = [f"data: {json.dumps(event)}{end}" for event in events]
    return said(path, STREAM, ("".join(lines) + f"data: [DONE]{end}").encode())


def chat(delta: Mapping[str, Any], finish: str | None = None, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def called(arguments: str, name: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "function": function, **more}]}


CALLS = [
    {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
    {"id": "b", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
]
CHAT_WHOLE = {
    "id": "one",
    "choices": [
        {
            "index": 0,
            "message": {"content": "héllo", "reasoning_content": "hm", "tool_calls": CALLS},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "details": {"cached": 1}},
}
CHAT_PIECES = [
    chat({"role": "assistant", "content": ""}),
    chat({"reasoning_content": "h"}),
    chat({"reasoning_content": "m"}),
    chat({"content": "hé"}),
    chat({"content": "llo"}),
    chat(called('{"x"', "add", 0, id="c")),
    chat(called(": 1}", None, 0)),
    chat(called("{}", "sub", 1, id="d")),
    chat({}, "tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
]


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
def test_a_streamed_chat_says_what_the_whole_one_says(end: str) -> None:
    expected = Said(
        (Choice("héllo", "hm", (("add", '{"x": 1}'), ("sub", "{}")), "tool_calls"),),
        usage={"prompt_tokens": 3, "completion_tokens": 2},
    )
    assert whole(CHAT, CHAT_WHOLE) == expected
    assert stream(CHAT, *CHAT_PIECES, end=end) == expected


def test_several_choices_are_put_together_by_their_numbers() -> None:
    pieces = [chat({"content": "b"}, index=1), chat({"content": "a"}), chat({"content": "B"}, "stop", 1)]
    found = stream(CHAT, *pieces, chat({}, "length"))
    assert found.choices == (Choice("a", finish="length"), Choice("bB", finish="stop"))


def test_plain_completions_are_their_text() -> None:
    one = whole(PLAIN, {"choices": [{"text": "so it is", "finish_reason": "stop"}]})
    two = stream(
        PLAIN, {"choices": [{"text": "so it"}]}, {"choices": [{"text": " is", "finish_reason": "stop"}]}
    )
    assert one == two == Said((Choice("so it is", finish="stop"),))


def test_the_newer_protocol_says_it_in_its_last_event() -> None:
    value = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "yes"}]},
            {"type": "function_call", "call_id": "x", "name": "add", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    expected = Said(
        (Choice("yes", "hm", (("add", "{}"),), "max_output_tokens"),),
        usage={"input_tokens": 1, "output_tokens": 2},
    )
    assert whole(NEWER, value) == expected
    started = {"type": "response.created", "response": {"output": [], "status": "in_progress"}}
    assert stream(NEWER, started, {"type": "response.incomplete", "response": value}) == expected


def test_blocks_say_the_same_whole_and_in_pieces() -> None:
    one = whole(
        BLOCKS,
        {
            "type": "message",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "random"},
                {"type": "text", "text": "yes"},
                {"type": "tool_use", "id": "x", "name": "add", "input": {"b": 1, "a": 2}},
            ],
            "stop_reason": "tool_use",
        },
    )
    two = stream(
        BLOCKS,
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"thinking": "hm"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "y"}},
        {"type": "content_block_delta", "index": 1, "delta": {"text": "es"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "y", "name": "add", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"partial_json": '{"a": 2,'}},
        {"type": "content_block_delta", "index": 2, "delta": {"partial_json": ' "b": 1}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )
    assert one == two
    assert one.choices == (Choice("yes", "hm", (("add", '{"a": 2, "b": 1}'),), "tool_use"),)


def test_what_holds_no_choice_is_compared_by_its_bytes() -> None:
    tokens = b'{"tokens": [1, 2]}'
    one, two = said("/tokenize", "application/json", tokens), said("/tokenize", "application/json", b"{}")
    assert differences(one, said("/tokenize", "text/plain", tokens)) == []
    assert differences(one, two)
    assert differences(one, whole(CHAT, CHAT_WHOLE))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("choices", "index", "message", "delta", "content", "tool_calls", "function", "text"),
                    *("name", "arguments", "output", "type", "response", "usage", "content_block", "input"),
                    *("finish_reason", "reasoning_content", "incomplete_details", "prompt_tokens"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.sampled_from([CHAT, PLAIN, NEWER, BLOCKS]), st.booleans(), st.lists(JSON, max_size=3))
def test_whatever_a_server_sends_is_read_without_an_error_and_equals_itself(
    path: str, streamed: bool, values: list[object]
) -> None:
    found = stream(path, *values) if streamed else whole(path, values[0] if values else {})
    assert differences(found, found) == []
    assert len(found.digest) == 64


@given(st.binary(max_size=60))
def test_bytes_that_are_no_answer_are_read_without_an_error(body: bytes) -> None:
    for kind in ("application/json", STREAM):
        assert differences(said(CHAT, kind, body), said(CHAT, kind, body)) == []


@given(st.text(), st.text())
def test_two_texts_differ_exactly_where_they_do(before: str, after: str) -> None:
    one, two = (whole(CHAT, {"choices": [{"message": {"content": text}}]}) for text in (before, after))
    found = differences(one, two)
    assert bool(found) == (before != after)
    if found:
        at = int(found[0].split("character ")[1].split(":")[0])
        assert before[:at] == after[:at]
        assert before[at : at + 1] != after[at : at + 1]


def test_each_part_that_differs_is_named_and_usage_is_not_among_them() -> None:
    then = Said((Choice("abc", "hm", (("f", "{}"),), "stop"),), usage={"completion_tokens": 3})
    now = Said((Choice("abd", "ha", (("g", "{}"),), "length"),), usage={"completion_tokens": 4})
    found = differences(then, now)
    assert [text.split(":")[0].split(" from")[0] for text in found] == [
        *("content", "thinking", "tool calls", "finish reason")
    ]
    assert "character 2: 'c' was recorded, 'd' is answered" in found[0]
    assert differences(then, Said(then.choices, usage=now.usage)) == []
    assert differences(then, Said((*then.choices, Choice())))


def test_a_finish_reason_that_the_record_does_not_tell_is_not_compared() -> None:
    assert differences(Said((Choice("a"),)), Said((Choice("a", finish="stop"),))) == []
    assert differences(Said((Choice("a", finish="stop"),)), Said((Choice("a"),)))
