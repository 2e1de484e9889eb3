"""What a server without an identity tells of itself, before and after each entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import asked, record, verdict

from standin import StandIn
from toy_checkout import Toy

PROPS = {
    "build_info": "b6000-abcdef",
    "model_path": "/models/qwen.gguf",
    "total_slots": 1,
    "chat_template": "{{ messages }}",
    "default_generation_settings": {"n_ctx": 4096, "is_processing": False, "prompt": ""},
}


def item(number: int = 0, **more: object) -> dict[str, Any]:
    """What vLLM lists for a model: a part of it is made up anew each time it is asked."""
    return {
        "id": "stand-in",
        "created": 1700000000 + number,
        "permission": [{"id": f"modelperm-{number}"}],
        "root": "/models/qwen",
        "max_model_len": 32768,
        **more,
    }


def documents(**changed: Callable[[int], Any]) -> dict[str, Callable[[int], Any]]:
    """A server that tells all there is to tell, with some of it changed."""
    told: dict[str, Callable[[int], Any]] = {
        "models": lambda number: {"data": [item(number)]},
        "props": lambda number: PROPS,
        "version": lambda number: {"version": "0.9.1"},
        **changed,
    }
    return {"/v1/models": told["models"], "/props": told["props"], "/version": told["version"]}


def test_what_another_server_tells_is_recorded_as_unverified(toy: Toy, runs: Path) -> None:
    def props(number: int) -> dict[str, Any]:
        state = {"n_ctx": 4096, "is_processing": number == 1, "prompt": f"prompt {number}"}
        return {**PROPS, "default_generation_settings": state}

    with StandIn(documents=documents(props=props)) as server:
        done = asked(toy, server, runs, "second")
    assert done.code == 0, done.err
    before, after = record(done), record(done, "second.after")
    assert before["source"] == "told by the server, unverified"
    assert before["identity"] is None
    assert before["unverified"]["/version"] == {"version": "0.9.1"}
    assert before["unverified"]["/props"]["build_info"] == "b6000-abcdef"
    assert before["unverified"]["/v1/models"]["max_model_len"] == 32768
    # They differ in what tells of the moment, and that is no other server.
    assert before["unverified"] != after["unverified"]
    told = "verified by nobody: /props, /v1/models, /version"
    found = verdict(toy, done, "server")
    assert found[0] == "UNKNOWN"
    assert told in found[1]


# The documents are asked for at the beginning, before the entry and after it: the third is another.
CHANGES: dict[str, tuple[dict[str, Callable[[int], Any]], str]] = {
    "the build": (
        {"props": lambda number: {**PROPS, "build_info": f"b{number // 2}"}},
        '/props.build_info was "b0", is "b1"',
    ),
    "the context": (
        {"props": lambda n: {**PROPS, "default_generation_settings": {"n_ctx": 1024 + n // 2}}},
        "/props.n_ctx was 1024, is 1025",
    ),
    "the version": (
        {"version": lambda number: {"version": str(number // 2)}},
        '/version.version was "0", is "1"',
    ),
    "a version that is told no more": (
        {"version": lambda number: {"version": "1"} if number < 2 else None},
        '/version.version was "1", is null',
    ),
    "the length": (
        {"models": lambda number: {"data": [item(max_model_len=number // 2)]}},
        "/v1/models.max_model_len was 0, is 1",
    ),
    "another model beside it": (
        {"models": lambda number: {"data": [item(), *[{"id": "more"}] * (number // 2)]}},
        'models[1] was null, is "more"',
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_server_that_tells_another_thing_afterwards_fails_the_run(
    toy: Toy, runs: Path, change: str
) -> None:
    changed, said = CHANGES[change]
    with StandIn(documents=documents(**changed)) as server:
        done = asked(toy, server, runs, "second")
    assert done.code == 5
    assert done.json["counts"]["scored"] == 4
    problem = f"second: the server is not the one that the run began with: {said}"
    assert problem in done.json["problems"]
    assert said in done.err
    assert verdict(toy, done, "server")[0] == "FAIL"
    assert f"the server changed during second: {said}" in verdict(toy, done, "server")[1]


def test_a_server_that_changes_between_two_entries_is_not_asked_the_second(toy: Toy, runs: Path) -> None:
    def version(number: int) -> dict[str, Any]:
        return {"version": "old" if number < 3 else "new"}  # beginning, before, after; before the second

    with StandIn(documents=documents(version=version)) as server:
        done = asked(toy, server, runs)
        assert len(server.requests) == 8
    assert done.code == 5
    counts = done.json["counts"]
    assert (counts["planned"], counts["scored"], counts["missing"]) == (12, 8, 4)
    said = '/version.version was "old", is "new"'
    assert done.json["problems"][0] == f"second: the server is not the one that the run began with: {said}"
    assert record(done, "first.after")["unverified"]["/version"] == {"version": "old"}
    assert record(done, "second.before")["unverified"]["/version"] == {"version": "new"}


UNFIT = {
    "no JSON": b"<!doctype html>",
    "no object": b"[1, 2]",
    "NaN": b'{"build_info": NaN}',
    "too deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "too large": b'{"a": "' + b"x" * (5 << 20) + b'"}',
    "no UTF-8": b'{"a": "\xff"}',
    "empty": b"",
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_document_that_cannot_be_kept_counts_as_none(toy: Toy, runs: Path, unfit: str) -> None:
    body = UNFIT[unfit]
    with StandIn(documents=documents(props=lambda number: body, version=lambda number: body)) as server:
        done = asked(toy, server, runs, "second")
    assert done.code == 0, done.err
    assert record(done)["unverified"]["/props"] is None
    assert record(done)["unverified"]["/v1/models"]["id"] == "stand-in"


def test_half_a_surrogate_in_a_document_does_not_reach_the_record(toy: Toy, runs: Path) -> None:
    with StandIn(documents=documents(version=lambda number: b'{"version": "\\ud800"}')) as server:
        done = asked(toy, server, runs, "second")
    assert done.code == 0, done.err
    assert record(done)["unverified"]["/version"] == {"version": "?"}


def test_a_list_of_models_that_is_none_is_no_endpoint(toy: Toy, runs: Path) -> None:
    for body in (b"{}", b"[]", b'{"data": 3}', b'{"data": [3, {"id": 4}]}'):
        with StandIn(documents={"/v1/models": lambda number, body=body: body}) as server:
            done = asked(toy, server, runs, "second")
        assert done.code == 3, done.err
        assert "does not serve" in done.err
