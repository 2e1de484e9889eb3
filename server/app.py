"""The HTTP application: routes, the key, the bound on what is let in, and errors in OpenAI's form.

`Gate` is the outermost layer and plain ASGI: it checks the key before anything is read, and counts
answers by route and status. `/health` alone is open; it says 503 until the model is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.chat import chat_completions
from server.completions import completions
from server.errors import ApiError, shutting_down
from server.follower import ClientGoneError
from server.metrics import CONTENT_TYPE
from server.openapi import document
from server.service import Service
from server.tokens import detokenize, tokenize

logger = logging.getLogger(__name__)

Endpoint = Callable[[Service, Request], Awaitable[Response]]

OPEN_PATHS = frozenset({"/health"})
DRAINING_PATHS = frozenset({"/metrics"})  # answered also after the server was told to stop
VERSION = version("assay")  # read here: a request opens no file
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; it stands in the metrics


async def health(service: Service, request: Request) -> Response:
    """Answer `GET /health`: 200 when the model can answer, 503 while it is loading."""
    service.ready()
    return JSONResponse({"status": "ok"})


async def metrics(service: Service, request: Request) -> Response:
    """Answer `GET /metrics` in Prometheus' text form."""
    return Response(service.metrics.render(), headers={"Content-Type": CONTENT_TYPE})


async def identity(service: Service, request: Request) -> Response:
    """Answer `GET /identity`; see server/identity.py."""
    return JSONResponse(service.ready().identity)


async def openapi(service: Service, request: Request) -> Response:
    """Answer `GET /openapi.json`; see server/openapi.py."""
    model = service.served.name if service.served is not None else None
    return JSONResponse(document(version=VERSION, model=model, keyed=service.key is not None))


async def models(service: Service, request: Request) -> Response:
    """Answer `GET /v1/models` with the one model there is."""
    return JSONResponse({"object": "list", "data": [_model(service)]})


async def model(service: Service, request: Request) -> Response:
    """Answer `GET /v1/models/NAME`."""
    name = request.path_params["name"]
    if name != service.ready().name:
        raise ApiError(404, f"the model {name!r} does not exist", code="model_not_found", param="model")
    return JSONResponse(_model(service))


def _model(service: Service) -> dict[str, object]:
    served = service.ready()
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "assay",
        "context_length": served.context,
    }


ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/health", health),
    ("GET", "/metrics", metrics),
    ("GET", "/identity", identity),
    ("GET", "/openapi.json", openapi),
    ("GET", "/v1/models", models),
    ("GET", "/v1/models/{name:path}", model),
    ("POST", "/v1/chat/completions", chat_completions),
    ("POST", "/v1/completions", completions),
    ("POST", "/tokenize", tokenize),
    ("POST", "/detokenize", detokenize),
)


def create_app(service: Service) -> ASGIApp:
    """Return the ASGI application over `service`, which may still be loading."""
    app = Starlette(
        routes=[
            Route(path, _bound(service, endpoint), methods=[method]) for method, path, endpoint in ROUTES
        ],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientGoneError: _client_gone,
            ClientDisconnect: _client_gone,
            Exception: _internal_error,
        },
    )
    app.router.redirect_slashes = False  # a path with a slash too many is a 404 like any other
    return Gate(app, service)


def _bound(service: Service, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def bound(request: Request) -> Response:
        return await endpoint(service, request)

    return bound


class Gate:
    """Checks the key and counts answers, around the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        """Guard `app`."""
        self._app = app
        self._service = service
        self._known = frozenset(path for _, path, _ in ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it with 401, or with 503 when the server is stopping."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        route = path if path in self._known else "other"
        requests = self._service.metrics.requests

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                requests[route, message["status"]] += 1
            await send(message)

        key = self._service.key
        if key is not None and path not in OPEN_PATHS and not key.matches(_authorization(scope)):
            await _respond(_unauthorized())(scope, receive, counted)
            return
        if self._service.draining and path not in DRAINING_PATHS:
            await _respond(shutting_down())(scope, receive, counted)
            return
        self._service.under_way += 1
        try:
            await self._app(scope, receive, counted)
        finally:
            self._service.under_way -= 1


def _authorization(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
    return None


def _unauthorized() -> ApiError:
    return ApiError(
        401,
        "the API key is missing or wrong; send it as `Authorization: Bearer KEY`",
        kind="authentication_error",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _respond(error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status, error.headers)


async def _api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return _respond(error)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        message, code = f"there is no {request.scope['path']} here", "not_found"
    else:
        message, code = f"{request.method} is not allowed here", "method_not_allowed"
    return _respond(ApiError(error.status_code, message, code=code, headers=error.headers))


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _internal_error(request: Request, error: Exception) -> Response:
    return _respond(ApiError(500, "the server failed on this request; see its log", kind="server_error"))
