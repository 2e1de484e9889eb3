"""The server's OpenAPI 3.1 document, made from the models that requests are checked by.

`GET /openapi.json` answers with it. It is about this server as it runs: the model's name is the one there
is, and a key is asked for where the server asks for one. Requests are told as they are judged: parameters
that change nothing, those of other engines at the values that are accepted, and null for any name at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from server import response
from server.chatschema import ChatRequest
from server.metrics import CONTENT_TYPE
from server.schema import INERT, NEUTRAL
from server.textschema import CompletionRequest, DetokenizeRequest, TokenizeRequest

VERSION = "3.1.0"
REFS = "#/components/schemas/{model}"
READING = (408, 413, 415)  # of a body
ANSWERING = (400, *READING, 404, 429, 500)


class OpenApi(BaseModel):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="forbid")

    openapi: Literal["3.1.0"]
    info: dict[str, str]
    paths: dict[str, Any]
    components: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint: what it takes, what it answers, and which refusals it knows."""

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None  # None: text
    request: type[BaseModel] | None = None
    chunk: type[BaseModel] | None = None  # of a stream's events, where one can be asked for
    refusals: tuple[int, ...] = ()
    loaded: bool = True  # 503 until the model is
    keyed: bool = True  # 401 without the key, where there is one


OPERATIONS = (
    Operation("get", "/health", "Whether the model can answer", response.Health, keyed=False),
    Operation("get", "/metrics", "Counters and histograms in Prometheus' text form", None, loaded=False),
    Operation("get", "/openapi.json", "This document", OpenApi, loaded=False),
    Operation("get", "/identity", "What answers here, by digest", response.Identity),
    Operation("get", "/v1/models", "The model", response.Models),
    Operation("get", "/v1/models/{name}", "The model by its name", response.Model, refusals=(404,)),
    Operation(
        "post",
        "/v1/chat/completions",
        "Answer messages through the model's chat template",
        response.ChatCompletion,
        ChatRequest,
        response.ChatChunk,
        ANSWERING,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Go on with a text or token ids",
        response.TextCompletion,
        CompletionRequest,
        response.TextCompletion,
        ANSWERING,
    ),
    Operation(
        "post",
        "/tokenize",
        "The token ids of a text or of rendered messages",
        response.Tokenized,
        TokenizeRequest,
        refusals=(400, *READING, 404),
    ),
    Operation(
        "post",
        "/detokenize",
        "The text of token ids",
        response.Detokenized,
        DetokenizeRequest,
        refusals=(400, *READING, 404),
    ),
)


def _definitions() -> Mapping[str, Mapping[str, object]]:
    models: list[type[BaseModel]] = [each.request for each in OPERATIONS if each.request is not None]
    models.append(response.Refusal)
    models += [each for one in OPERATIONS for each in (one.answer, one.chunk) if each is not None]
    mode: JsonSchemaMode = "validation"
    _, found = models_json_schema([(each, mode) for each in models], ref_template=REFS)
    definitions: Mapping[str, Mapping[str, object]] = found["$defs"]
    return definitions


# Made once, here: pydantic imports a part of itself for it, and a request opens no file.
DEFINITIONS = _definitions()


def document(*, version: str, model: str | None, keyed: bool) -> dict[str, object]:
    """Return the document of a server.

    Args:
        version: of the server.
        model: the name of the one that is served; None while it loads.
        keyed: a key is asked for.
    """
    schemas = _schemas(model)
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, keyed=keyed)
    components: dict[str, object] = {"schemas": schemas}
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": VERSION,
        "info": {
            "title": "Assay's inference server",
            "version": version,
            "description": "OpenAI's HTTP API over one model. See docs/api.md.",
        },
        "paths": paths,
        "components": components,
    }


def _operation(operation: Operation, *, keyed: bool) -> dict[str, object]:
    keyed = keyed and operation.keyed
    refusals = {*operation.refusals, *((503,) if operation.loaded else ()), *((401,) if keyed else ())}
    name = operation.path.strip("/").replace("/", "_").replace(".", "_").replace("{", "").replace("}", "")
    out: dict[str, object] = {
        "operationId": f"{operation.method}_{name}",
        "summary": operation.summary,
        "responses": {
            "200": {"description": "Done", "content": _content(operation)},
            **{str(status): _refusal(status) for status in sorted(refusals)},
        },
    }
    if keyed:
        out["security"] = [{"key": []}]
    if "{name}" in operation.path:
        out["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if operation.request is not None:
        content = {"application/json": {"schema": _ref(operation.request)}}
        out["requestBody"] = {"required": True, "content": content}
    return out


def _content(operation: Operation) -> dict[str, object]:
    if operation.answer is None:
        return {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}
    content: dict[str, object] = {"application/json": {"schema": _ref(operation.answer)}}
    if operation.chunk is not None:
        content["text/event-stream"] = {
            "schema": {
                "type": "object",
                "description": "One event. After a failure amid the stream the last one is a refusal.",
                "properties": {
                    "data": {
                        "anyOf": [
                            {"const": "[DONE]"},
                            {
                                "type": "string",
                                "contentMediaType": "application/json",
                                "contentSchema": {"anyOf": [_ref(operation.chunk), _ref(response.Refusal)]},
                            },
                        ]
                    }
                },
                "required": ["data"],
            }
        }
    return content


def _refusal(status: int) -> dict[str, object]:
    out: dict[str, object] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": _ref(response.Refusal)}},
    }
    if status in (429, 503):
        out["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}}
    if status == 401:
        out["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return out


def _ref(model: type[BaseModel]) -> dict[str, object]:
    return {"$ref": REFS.format(model=model.__name__)}


def _schemas(model: str | None) -> dict[str, object]:
    asked = [each.request.__name__ for each in OPERATIONS if each.request is not None]
    return {**DEFINITIONS, **{name: _as_judged(DEFINITIONS[name], model) for name in asked}}


def _as_judged(schema: Mapping[str, object], model: str | None) -> dict[str, object]:
    """Return a request's schema with what server/schema.py accepts beside the model's own fields."""
    known = schema["properties"]
    if not isinstance(known, Mapping):
        raise TypeError("a request's schema has no properties")
    own = dict(known)
    if model is not None:
        name = dict(own["model"])
        nullable = "anyOf" in name
        own["model"] = {"title": "Model", "enum": [model, None] if nullable else [model]}
    inert = {name: {"description": "Accepted; it changes nothing."} for name in sorted(INERT)}
    neutral = {
        name: {"description": "Accepted where it asks for nothing.", "enum": [None, *values]}
        for name, values in NEUTRAL.items()
    }
    return {**schema, "properties": {**inert, **neutral, **own}, "additionalProperties": {"type": "null"}}
