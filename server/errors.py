"""The two kinds of error a person or a client can meet.

`StartError` is for the person who types the command: what is wrong, why, and the next command.
`ApiError` is for a client: it knows its HTTP status and renders itself in OpenAI's form, so that every
refusal, from a bad key to an overlong prompt, reads the same to every client library.
"""

from __future__ import annotations

from collections.abc import Mapping

BAD_CONFIGURATION = 2
MISSING_DEPENDENCY = 3
CANCELLED = 6


class StartError(Exception):
    """The server cannot start; carries what, why, the next command and the exit code."""

    def __init__(self, what: str, why: str, next_command: str, exit_code: int = BAD_CONFIGURATION) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_command = next_command
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"error: {self.what}\n  why:  {self.why}\n  next: {self.next_command}"


class ApiError(Exception):
    """A refused or failed request: HTTP status, OpenAI error fields, extra body fields and headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        extra: Mapping[str, int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """Return the JSON body in OpenAI's form."""
        error: dict[str, object] = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": {**error, **self.extra}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the 400 for a request that is wrong in itself."""
    return ApiError(400, message, param=param, code=code)


def loading() -> ApiError:
    """Return the 503 given while the weights are still being read."""
    return ApiError(
        503, "the model is loading", kind="unavailable_error", code="loading", headers={"Retry-After": "1"}
    )


def shutting_down() -> ApiError:
    """Return the 503 for what comes after the server was told to stop."""
    return ApiError(
        503,
        "the server is shutting down",
        kind="unavailable_error",
        code="shutting_down",
        headers={"Retry-After": "1", "Connection": "close"},
    )


def queue_full(waiting: int) -> ApiError:
    """Return the 429 given when `waiting` choices already wait for a slot."""
    return ApiError(
        429,
        f"the queue is full: {waiting} choices wait for a slot",
        kind="rate_limit_error",
        code="queue_full",
        headers={"Retry-After": "1"},
    )


def context_exceeded(prompt_tokens: int, context: int, param: str) -> ApiError:
    """Return the 400 for a prompt that leaves no room for an answer; the context is never shifted."""
    return ApiError(
        400,
        f"the prompt has {prompt_tokens} tokens and the context holds {context}: shorten the prompt",
        kind="exceed_context_size_error",
        code="context_length_exceeded",
        param=param,
        extra={"n_prompt_tokens": prompt_tokens, "n_ctx": context},
    )


def exhausted(what: str, why: str) -> ApiError:
    """Return the 503 for a request that the operating system has no file or memory for just now."""
    return ApiError(
        503,
        f"{what}: {why}",
        kind="unavailable_error",
        code="out_of_resources",
        headers={"Retry-After": "1"},
    )


def engine_failed() -> ApiError:
    """Return the 500 given to every request that was in a batch the engine could not run."""
    return ApiError(500, "the engine failed on this batch; see the server's log", kind="server_error")


def answer_failed() -> ApiError:
    """Return the 500 for one answer that could not go on; those beside it do."""
    return ApiError(500, "the server failed on this answer; see its log", kind="server_error")
