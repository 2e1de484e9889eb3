"""`response_format`: what a grammar forces, what it refuses, and what it leaves alone."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import numpy as np
import openai
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.errors import ApiError
from server.grammar import Constraint, GrammarCompiler, json_rule
from server.tokenizer import Tokenizer
from tests.server.http import toy as toy_model
from tests.server.http.running import Toy, toy_server

USER = [{"role": "user", "content": "json please"}]
CONTEXT = 4096
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    with toy_server(context=CONTEXT) as running:
        yield running


def following(schema: object, **more: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def ask(toy: Toy, response_format: object, **parameters: object) -> httpx.Response:
    body = {"model": "toy", "messages": USER, "response_format": response_format, **parameters}
    return httpx.post(f"{toy.url}/v1/chat/completions", json=body, timeout=120)


def refused(answer: httpx.Response, param: str = "response_format") -> str:
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize("parameters", [{"temperature": 0}, {"seed": 4}, {"temperature": 2, "seed": 1}])
def test_an_answer_follows_its_schema_however_it_is_chosen(
    client: openai.OpenAI, parameters: dict[str, Any]
) -> None:
    answer = client.chat.completions.create(
        model="toy",
        messages=USER,
        response_format=following(PERSON, strict=True),
        max_tokens=3000,
        **parameters,
    )
    assert answer.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(str(answer.choices[0].message.content)), PERSON)


def test_the_clients_own_parsing_of_a_pydantic_model(client: openai.OpenAI) -> None:
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=8)
        tags: list[bool] = pydantic.Field(max_length=3)

    answer = client.chat.completions.parse(
        model="toy", messages=USER, response_format=Person, seed=3, max_tokens=3000
    )
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Person)
    assert len(parsed.name) <= 8


def test_any_json_object(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="toy", messages=USER, response_format={"type": "json_object"}, seed=5, max_tokens=4000
    )
    text = str(answer.choices[0].message.content)
    assert text.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_the_token_limit_may_cut_the_json_and_says_length(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="toy", messages=USER, response_format=following(PERSON), seed=5, max_tokens=4
    )
    assert answer.choices[0].finish_reason == "length"
    assert str(answer.choices[0].message.content).startswith("{")


def test_a_stream_under_a_grammar_is_the_same_text(client: openai.OpenAI) -> None:
    parameters: dict[str, Any] = {
        "model": "toy",
        "messages": USER,
        "response_format": following(PERSON),
        "seed": 9,
        "max_tokens": 3000,
    }
    whole = client.chat.completions.create(**parameters).choices[0].message.content
    pieces = [
        choice.delta.content or ""
        for chunk in client.chat.completions.create(stream=True, **parameters)
        for choice in chunk.choices
    ]
    assert "".join(pieces) == whole


def test_log_probabilities_are_the_models_before_the_mask(toy: Toy) -> None:
    only = {"const": "é"}
    scored = {"logprobs": True, "top_logprobs": 3, "temperature": 0, "max_tokens": 50}
    found = ask(toy, following(only), **scored).json()["choices"][0]
    assert found["message"]["content"] == '"é"'
    entries = found["logprobs"]["content"]
    prompt = f"<|im_start|>user\n{USER[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    served = toy.service.served
    assert served is not None
    ids = served.tokenizer.encode(prompt)
    for entry, byte in zip(entries, b'"\xc3\xa9"', strict=True):
        row = toy_model.row_after(ids).astype("float64")
        token = toy_model.FIRST_BYTE + byte
        assert entry["bytes"] == [byte]
        assert entry["logprob"] == pytest.approx(row[token] - np.log(np.exp(row).sum()), abs=1e-9)
        # The grammar left one choice; the model's own favourites stand beside it all the same.
        assert entry["top_logprobs"][0]["logprob"] > entry["logprob"]
        ids.append(token)


def test_choices_follow_the_schema_each_by_itself(toy: Toy) -> None:
    schema = {"enum": ["red", "green", "blue"]}
    choices = ask(toy, following(schema), n=12, seed=2, max_tokens=20).json()["choices"]
    said = [json.loads(choice["message"]["content"]) for choice in choices]
    assert set(said) == {"red", "green", "blue"}


def test_a_biased_or_penalised_choice_stays_within_the_grammar(toy: Toy) -> None:
    letter = str(toy_model.ids(b"Q")[0])
    answer = ask(toy, following({"enum": ["a", "Q"]}), temperature=0, logit_bias={letter: 100}, max_tokens=9)
    assert answer.json()["choices"][0]["message"]["content"] == '"Q"'


DEEP: dict[str, Any] = {"type": "string"}
for _ in range(20):
    DEEP = {"type": "array", "items": DEEP, "minItems": 1, "maxItems": 1}


def test_a_deep_and_a_recursive_schema_are_followed(toy: Toy) -> None:
    text = ask(toy, following(DEEP), seed=1, max_tokens=3000).json()["choices"][0]["message"]["content"]
    assert text.count("[") >= 20
    tree = {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    }
    choice = ask(toy, following(tree), seed=1, max_tokens=3000).json()["choices"][0]
    if choice["finish_reason"] == "stop":
        jsonschema.validate(json.loads(choice["message"]["content"]), tree)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "wat"}, "wat"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "not"),
        ({"type": "string", "format": "postcode"}, "postcode"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "("}, "regex"),
        ({"$ref": "#"}, "no answer can satisfy"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            "no answer",
        ),
        ({"$ref": "http://127.0.0.1/schema"}, "does not fetch"),
        ({"enum": []}, ""),
        ({"const": -(2**63) + 1}, "does not survive"),
        ({"type": "integer", "multipleOf": 2**31}, "takes more than"),
        ({"type": "object", "x-guidance": {"lenient": True}}, "x-guidance"),
        ({"enum": [f"value number {n}" for n in range(10_000)]}, "too large"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_a_400_with_the_reason(
    toy: Toy, schema: object, said: str
) -> None:
    for _ in range(2):  # the second time out of the cache
        assert said in refused(ask(toy, following(schema), max_tokens=1))


@pytest.mark.parametrize("bound", ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"])
def test_a_bound_that_the_library_would_move_outwards_is_refused(bound: str) -> None:
    past = 2**53 + 1 if "inimum" in bound else 2**53 + 3  # as floats: one less, one more
    for schema in (
        {"type": "integer", bound: past},
        {"anyOf": [{"items": {"type": "integer", bound: past}}]},
    ):
        with pytest.raises(ApiError, match="cannot be followed"):
            json_rule(schema, "x")
    for good in (2**53, -(2**53), 2**63 - 1, 7, True):
        assert json_rule({"properties": {bound: {"type": "integer", bound: good}}}, "x")
    assert json_rule({"const": {bound: past}}, "x")


def test_a_chain_of_references_ends_in_an_answer_or_a_400_and_never_the_server(toy: Toy) -> None:
    for length in (200, 3000):
        chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(length)}
        schema = {"$defs": {**chain, f"a{length}": {"const": 1}}, "$ref": "#/$defs/a0"}
        answer = ask(toy, following(schema), max_tokens=5)
        assert answer.status_code in (200, 400), answer.text
    assert httpx.get(f"{toy.url}/health").status_code == 200


def test_a_grammar_and_ignore_eos_contradict_each_other(toy: Toy) -> None:
    refused(ask(toy, {"type": "json_object"}, ignore_eos=True, max_tokens=5), "ignore_eos")


def test_a_known_schema_does_not_wait_for_the_trial_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(Tokenizer(toy_model.metadata()))
    known, new = f"start: {json_rule(PERSON, 'x')}", f"start: {json_rule({'type': 'null'}, 'x')}"
    begun, ended = threading.Event(), threading.Event()

    def slow(_: str) -> None:
        begun.set()
        assert ended.wait(60)

    async def ask() -> bool:
        first = await compiler.compile(known, "x")
        monkeypatch.setattr("server.grammar._trial", slow)
        trial = asyncio.create_task(compiler.compile(new, "x"))
        await asyncio.to_thread(begun.wait, 60)
        try:
            return await asyncio.wait_for(compiler.compile(known, "x"), 10) is first and not trial.done()
        finally:
            ended.set()
            await trial

    assert asyncio.run(ask())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_a_system_without_room_for_the_trial_is_a_503_and_says_nothing_of_the_schema(
    toy: Toy, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = following({"const": f"room {number}"})

    def full(*_: object, **__: object) -> None:
        raise OSError(number, "the system's own words")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", full)
        answer = ask(toy, schema)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "out_of_resources"
    assert ask(toy, schema).status_code == 200


def test_a_trial_that_ends_before_it_begins_says_nothing_of_the_schema(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = following({"const": "begun"})
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")  # as an interpreter does that finds no memory
        answer = ask(toy, schema)
    assert answer.status_code == 503
    assert "before it began" in answer.json()["error"]["message"]
    assert ask(toy, schema).status_code == 200


def test_a_token_is_taken_exactly_where_the_mask_allows_it() -> None:
    # A greedy answer relies on it: it asks for no mask while the model's own choice is taken.
    grammar = asyncio.run(
        GrammarCompiler(Tokenizer(toy_model.metadata())).compile(f"start: {json_rule(PERSON, 'x')}", "x")
    )
    text = toy_model.ids('{"name": "é\\n",\n  "age": 42}'.encode())
    for length in range(len(text) + 1):

        def walked(length: int = length) -> Constraint:
            walk = grammar.begin()
            assert all(walk.take(token) for token in text[:length])
            return walk

        if walked().complete:
            continue
        taken = {token for token in range(toy_model.VOCABULARY) if walked().take(token)}
        assert taken == set(walked().allowed().tolist())


SCALARS = st.sampled_from(
    [
        {"type": "boolean"},
        {"type": "null"},
        {"type": "integer", "minimum": -20, "maximum": 3000},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string", "maxLength": 6},
        {"type": "string", "pattern": "^[a-c]{1,3}-[0-9]{2}$"},
        {"type": "string", "format": "date"},
        {"enum": ["é", "日本", 7, None, {"a": [1]}]},
        {"const": 'quote " and \\ and \n'},
    ]
)


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def made(properties: dict[str, Any], count: int) -> dict[str, Any]:
        required = list(properties)[:count]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    names = st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable())
    return st.builds(made, st.dictionaries(names, children, max_size=4), st.integers(0, 4))


def arrays(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def made(items: Any, least: int, more: int) -> dict[str, Any]:
        return {"type": "array", "items": items, "minItems": least, "maxItems": least + more}

    return st.builds(made, children, st.integers(0, 2), st.integers(0, 2))


SCHEMAS = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        objects(children),
        arrays(children),
        st.lists(children, min_size=1, max_size=3).map(lambda found: {"anyOf": found}),
    ),
    max_leaves=8,
)


def follow(toy: Toy, schema: dict[str, Any], seed: int) -> None:
    choice = ask(toy, following(schema), seed=seed, max_tokens=2500).json()["choices"][0]
    text = choice["message"]["content"]
    if choice["finish_reason"] == "stop":
        jsonschema.validate(json.loads(text), schema)
    else:
        assert choice["finish_reason"] == "length"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SCHEMAS, st.integers(0, 2**32))
def test_every_completed_answer_parses_and_validates(toy: Toy, schema: dict[str, Any], seed: int) -> None:
    follow(toy, schema, seed)


@pytest.mark.long
@settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SCHEMAS, st.integers(0, 2**32))
def test_every_completed_answer_parses_and_validates_over_many_schemas(
    toy: Toy, schema: dict[str, Any], seed: int
) -> None:
    follow(toy, schema, seed)
