"""The HTTP surface against its own OpenAPI document: sound requests and spoilt ones, generated from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from server import response
from server.app import OPEN_PATHS, ROUTES
from server.openapi import OpenApi, document
from server.response import ChatChunk, Refusal, TextCompletion
from tests.server.http.running import Toy, toy_server, wait_for

pytestmark = pytest.mark.slow

KEY = "a-key-of-the-fuzz"
HEADERS = {"authorization": f"Bearer {KEY}"}
# What a schema cannot say (limits on combinations, on bytes, on what a template takes) is a documented 400: a
# sound request may be refused. The key is tried below, path by path.
LEFT_OUT = ("positive_data_acceptance", "ignored_auth")
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    with toy_server(key=KEY.encode(), context=96) as running:
        yield running


FORMS = pytest.mark.parametrize(
    ("examples", "whole"),
    [
        (45, False),
        pytest.param(1300, False, marks=pytest.mark.long),
        pytest.param(100, True, marks=pytest.mark.long),
    ],
)


def described(toy: Toy) -> dict[str, object]:
    answer = httpx.get(f"{toy.url}/openapi.json", headers=HEADERS)
    assert answer.status_code == 200
    return dict(answer.json())


def test_the_document_is_openapi_and_names_every_route(toy: Toy) -> None:
    found = described(toy)
    OpenAPIV31SpecValidator(found).validate()
    paths = found["paths"]
    assert isinstance(paths, dict)
    told = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert told == {(method, path.replace(":path", "")) for method, path, _ in ROUTES}
    for path, methods in paths.items():
        for operation in methods.values():
            assert ("security" in operation) == (path not in OPEN_PATHS)
            assert ("401" in operation["responses"]) == (path not in OPEN_PATHS)
            assert operation["summary"]


def test_the_document_is_about_the_server_as_it_runs() -> None:
    with_key = json.dumps(document(version="1", model="toy", keyed=True))
    without = json.dumps(document(version="1", model="toy", keyed=False))
    loading = document(version="1", model=None, keyed=False)
    OpenAPIV31SpecValidator(loading).validate()
    assert "securitySchemes" in with_key
    assert "401" not in without
    assert '"enum": ["toy"]' in with_key
    assert "toy" not in json.dumps(loading)


def test_every_path_wants_the_key_that_the_document_asks_for(toy: Toy) -> None:
    paths = described(toy)["paths"]
    assert isinstance(paths, dict)
    for path, methods in paths.items():
        for method, operation in methods.items():
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}):
                answer = httpx.request(method, toy.url + path, headers=headers)
                assert (answer.status_code == 401) == ("security" in operation), (method, path)


def checked(answer: httpx.Response | schemathesis.Response, path: str) -> str:
    """Hold a stream to the shapes that the document names; which kind of answer it was."""
    if "text/event-stream" not in str(answer.headers.get("content-type")):
        return str(answer.status_code)
    shape = ChatChunk if "chat" in path else TextCompletion
    events = [event for event in answer.text.split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    data = [event.removeprefix("data: ") for event in events if event != "data: [DONE]"]
    # The generator's client leaves a long stream before its end.
    if "error" in json.loads(data[-1]):
        Refusal.model_validate_json(data.pop())
    for event in data:
        shape.model_validate_json(event)
    return "stream"


def lean(found: dict[str, object]) -> dict[str, object]:
    """The document whose requests have no places for any JSON at all: to fill those takes long."""
    text = json.loads(json.dumps(found))
    for name, schema in text["components"]["schemas"].items():
        if hasattr(response, name) or "response" in name or name == OpenApi.__name__:
            continue
        if schema.get("additionalProperties") is True:
            schema["additionalProperties"] = False
        own = schema.get("properties", {})
        schema["properties"] = {key: item for key, item in own.items() if item.keys() - {"description"}}
    return dict(text)


def fuzz(toy: Toy, mode: GenerationMode, examples: int, document: dict[str, object]) -> Counter[str]:
    """Ask every operation so many requests, more where there is a body; what kinds of answers came."""
    load_all_checks()
    checks = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]
    kinds: Counter[str] = Counter()
    schema = schemathesis.openapi.from_dict(document)
    for found in schema.get_all_operations():
        operation = found.ok()
        share = examples if operation.method == "post" else max(examples // 10, 3)
        if operation.method == "get" and mode is NEGATIVE and "{name}" not in operation.path:
            continue  # it takes nothing that could be spoilt

        @settings(
            max_examples=share,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @given(case=operation.as_strategy(generation_mode=mode), stream=st.booleans())
        def one(case: schemathesis.Case, stream: bool) -> None:
            if mode is POSITIVE and isinstance(case.body, dict) and "completions" in case.path:
                # Of the many choices and tokens that may be asked for, a few do.
                few = {"n": 2, "max_tokens": 20, "max_completion_tokens": 20}
                case.body.update({key: most for key, most in few.items() if (case.body.get(key) or 0) > most})
                case.body["stream"] = stream
            answer = case.call_and_validate(base_url=toy.url, headers=HEADERS, checks=checks)
            kinds[checked(answer, case.path)] += 1

        one()
    wait_for(lambda: toy.service.metrics.running == toy.service.metrics.waiting == toy.service.under_way == 0)
    assert not {kind for kind in kinds if kind.startswith("5")}
    return kinds


@FORMS
def test_sound_requests_are_answered_as_the_document_says(toy: Toy, examples: int, whole: bool) -> None:
    found = described(toy)
    kinds = fuzz(toy, POSITIVE, examples, found if whole else lean(found))
    assert kinds["200"] > 0.1 * kinds.total()
    assert kinds["stream"] > 0


@FORMS
def test_spoilt_requests_are_refused_as_the_document_says(toy: Toy, examples: int, whole: bool) -> None:
    found = described(toy)
    kinds = fuzz(toy, NEGATIVE, examples, found if whole else lean(found))
    assert kinds["400"] > 0.5 * kinds.total()
