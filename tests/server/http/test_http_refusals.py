"""What is refused, with which status, and that the error reads as OpenAI's do."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

from server.body import MAX_BODY_BYTES, MAX_DEPTH
from server.chatschema import ChatRequest
from server.schema import NEUTRAL
from tests.server.http.running import Toy, toy_server, wait_for

USER = [{"role": "user", "content": "hi"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
KEY = "a-key-of-this-test"


def error(answer: httpx.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()["error"]
    assert body.keys() >= {"message", "type", "param", "code"}
    assert body["message"]
    return dict(body)


def post(toy: Toy, path: str = CHAT, **parameters: object) -> httpx.Response:
    given = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    return httpx.post(toy.url + path, json={"model": "toy", "max_tokens": 1, **given, **parameters})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"model": "toy", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "toy", "messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"model": "toy", "messages": [{"role": "user", "content": "x"}], "temperature": Infinity}',
        b'{"model": "toy", "messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
        b'{"model": "toy", "messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "toy", "messages": ' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_no_sound_json_object_is_a_400(toy: Toy, body: bytes) -> None:
    error(httpx.post(toy.url + CHAT, content=body, headers={"content-type": "application/json"}), 400)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messages", []),
        ("messages", "hi"),
        ("messages", None),
        ("messages", [{"role": "wizard", "content": "hi"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        ("messages", [{"role": "function", "content": "the template refuses this role"}]),
        ("model", None),
        ("model", 7),
        ("temperature", "0"),
        ("temperature", -0.1),
        ("temperature", True),
        ("top_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 2),
        ("max_tokens", -1),
        ("max_tokens", "5"),
        ("max_completion_tokens", 1.5),
        ("n", 0),
        ("n", 1000),
        ("seed", "7"),
        ("seed", 2**70),
        ("stop", [""]),
        ("stop", ["x"] * 17),
        ("stop", [1]),
        ("stop", "x" * 257),
        ("stream", "yes"),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"99999": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"-1": 1}),
        ("top_logprobs", 3),
        ("top_logprobs", 21),
        ("presence_penalty", 3),
        ("frequency_penalty", "much"),
        ("chat_template_kwargs", ["x"]),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "absent"}}),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "wat"}}}),
        ("repetition_penalty", 1.1),
        ("reasoning_effort", "high"),
        ("temperatur", 0),
    ],
)
def test_a_wrong_value_is_a_400_that_names_the_parameter(toy: Toy, name: str, value: object) -> None:
    found = error(post(toy, **{name: value}), 400)
    assert found["param"] == name
    assert found["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", None),
        ("prompt", ""),
        ("prompt", []),
        ("prompt", [[]]),
        ("prompt", [1, "a"]),
        ("prompt", [True]),
        ("prompt", [-1]),
        ("prompt", [259]),
        ("prompt", ["a"] * 257),
        ("prompt", [[1], [2**40]]),
        ("logprobs", 21),
        ("logprobs", True),
        ("best_of", 2),
        ("suffix", "x"),
        ("echo", "no"),
    ],
)
def test_a_wrong_completion_is_a_400_that_names_the_parameter(toy: Toy, name: str, value: object) -> None:
    found = error(post(toy, TEXT, **{name: value}), 400)
    assert found["param"] == name


@pytest.mark.parametrize("name", sorted(NEUTRAL.keys() - ChatRequest.model_fields.keys()))
def test_null_is_neutral_and_another_value_is_refused(toy: Toy, name: str) -> None:
    assert post(toy, **{name: None}).status_code == 200
    assert error(post(toy, **{name: "something else"}), 400)["code"] == "unsupported_parameter"


def test_a_typing_error_gets_the_nearest_name(toy: Toy) -> None:
    assert "did you mean temperature?" in str(error(post(toy, temperatur=1), 400)["message"])


def test_another_model_is_a_404(toy: Toy, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-5", messages=USER)
    assert caught.value.code == "model_not_found"
    error(httpx.get(f"{toy.url}/v1/models/gpt-5"), 404)


def test_a_prompt_past_the_context_is_refused_with_both_numbers(toy: Toy) -> None:
    found = error(post(toy, TEXT, prompt="x" * 256), 400)
    assert found["type"] == "exceed_context_size_error"
    assert (found["n_prompt_tokens"], found["n_ctx"]) == (256, 256)
    assert post(toy, TEXT, prompt="x" * 255).status_code == 200
    assert post(toy, TEXT, prompt="x" * 256, max_tokens=0).status_code == 200


def test_other_paths_methods_and_media_types(toy: Toy) -> None:
    error(httpx.get(f"{toy.url}/v1/nothing"), 404)
    refused = httpx.get(toy.url + CHAT)
    error(refused, 405)
    assert refused.headers["allow"] == "POST"
    error(httpx.post(f"{toy.url}/health"), 405)
    error(httpx.post(toy.url + CHAT, content="x=1", headers={"content-type": "text/plain"}), 415)
    zipped = {"content-type": "application/json", "content-encoding": "gzip"}
    error(httpx.post(toy.url + CHAT, content=b"{}", headers=zipped), 415)


def test_a_body_past_the_bound_is_a_413_with_and_without_its_length(toy: Toy) -> None:
    headers = {"content-type": "application/json"}
    body = b" " * (MAX_BODY_BYTES + 1)
    error(httpx.post(toy.url + CHAT, content=body, headers=headers), 413)
    pieces = (body[begin : begin + 65536] for begin in range(0, len(body), 65536))
    error(httpx.post(toy.url + CHAT, content=pieces, headers=headers), 413)


def test_models_and_identity_name_what_is_served(toy: Toy, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").id == "toy"
    assert httpx.get(f"{toy.url}/identity").json()["schema"] == "assay/identity/v1"
    assert httpx.get(f"{toy.url}/health").json() == {"status": "ok"}


def test_without_the_key_only_health_answers() -> None:
    with toy_server(key=KEY.encode()) as toy:
        assert httpx.get(f"{toy.url}/health").status_code == 200
        for given in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": f"Basic {KEY}"},
            {"authorization": KEY},
        ):
            for path in ("/v1/models", "/identity", "/metrics", CHAT, "/nothing"):
                answer = httpx.get(toy.url + path, headers=given)
                assert error(answer, 401)["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
        # A body is not read before the key is known.
        error(httpx.post(toy.url + CHAT, content=b"{", headers={"content-type": "application/json"}), 401)
        with openai.OpenAI(base_url=f"{toy.url}/v1", api_key=KEY, max_retries=0) as client:
            assert client.chat.completions.create(model="toy", messages=USER, max_tokens=1).choices
        with (
            openai.OpenAI(base_url=f"{toy.url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()


def test_while_the_model_loads_everything_says_503() -> None:
    with toy_server(load=False) as toy:
        wait_for(lambda: _answers(toy))
        for answer in (httpx.get(f"{toy.url}/health"), post(toy), httpx.get(f"{toy.url}/identity")):
            assert error(answer, 503)["code"] == "loading"
            assert answer.headers["retry-after"] == "1"


def _answers(toy: Toy) -> bool:
    return httpx.get(f"{toy.url}/health").status_code == 503


def test_metrics_are_in_prometheus_form(toy: Toy) -> None:
    post(toy)
    page = httpx.get(f"{toy.url}/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    values = {}
    for line in page.text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    assert values['assay_requests_total{route="/v1/chat/completions",status="200"}'] >= 1
    assert (
        values['assay_time_to_first_token_seconds_bucket{le="+Inf"}']
        == values["assay_time_to_first_token_seconds_count"]
    )
    assert values["assay_generation_tokens_total"] >= 1
    assert json.dumps(values)
