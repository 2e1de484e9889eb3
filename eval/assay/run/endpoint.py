"""The server as a run sees it: asked over HTTP only, before and after each entry.

What the server says about itself is recorded as `claimed`: Assay did not measure it. A server without
`/identity` (any other OpenAI-compatible one) is recorded as offering none, with what it tells of itself
elsewhere. A server that repeats the key in what it tells brings it into no record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx

from assay.errors import PrerequisiteError
from assay.names import nearest
from assay.run.container import Search, search
from assay.run.identity import MODELS, PROPS, VERSION, Identity, redact
from assay.run.key import Key

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
MAXIMUM_BYTES = 4 << 20  # of any one answer


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server.

    Attributes:
        base_url: Ends in `/v1`.
        model: The name asked for.
        key: The secret it wants, None for an open server.
        container: The name or id of its container, None to look for the one that publishes its port.
        own: Whether this run started it itself, in no container.
    """

    base_url: str
    model: str
    key: Key | None
    container: str | None = None
    own: bool = False


def probe(endpoint: Endpoint) -> Identity:
    """Ask the server who it is, and whether it knows the key and the model.

    Raises:
        ConfigurationError: more than one container may be the server's.
        PrerequisiteError: it does not answer, refuses the key, or does not list the model; or its named
            container is not there.
    """
    headers = {"Authorization": f"Bearer {endpoint.key.reveal()}"} if endpoint.key else {}
    root = endpoint.base_url.removesuffix("/v1")
    told: dict[str, Any] = {}
    with httpx.Client(headers=headers, timeout=TIMEOUT, trust_env=False) as client:
        status, listing = _get(client, endpoint, f"{endpoint.base_url}/models")
        if status == httpx.codes.SERVICE_UNAVAILABLE:
            raise PrerequisiteError(
                f"the server at {endpoint.base_url} is not ready",
                f"/v1/models answered {status}: it may still load its model",
                "wait until it is, then run again",
            )
        if status != httpx.codes.OK:
            raise refused(endpoint, f"/v1/models answered {status}")
        items = _items(listing)
        if endpoint.model not in items:
            raise PrerequisiteError(
                f'the server at {endpoint.base_url} does not serve "{endpoint.model}"',
                nearest(endpoint.model, items),
                "give the right name with --model, or start the server that has it",
            )
        claimed = _optional(client, endpoint, f"{root}/identity")
        if claimed is not None and not str(claimed.get("schema", "")).startswith("assay/identity/"):
            claimed = None
        if claimed is None:
            told[MODELS] = items[endpoint.model]
            told |= {path: _optional(client, endpoint, root + path) for path in (PROPS, VERSION)}
    found = Search(None, "this run started the server itself") if endpoint.own else None
    return Identity(claimed, tuple(items), told, found or search(endpoint.base_url, endpoint.container))


def refused(endpoint: Endpoint, why: str) -> PrerequisiteError:
    """The error for a server that answers, but not as it must."""
    return PrerequisiteError(
        f"the server at {endpoint.base_url} refuses", why, "check that the address is the server you mean"
    )


def _get(client: httpx.Client, endpoint: Endpoint, url: str) -> tuple[int, Any]:
    """The status and the JSON value, free of the key; None for what is no JSON that can be kept."""
    try:
        with client.stream("GET", url) as answer:
            data = b""
            for part in answer.iter_bytes():
                data += part
                if len(data) > MAXIMUM_BYTES:
                    return answer.status_code, None
    except httpx.HTTPError as error:
        raise PrerequisiteError(
            f"the server at {endpoint.base_url} does not answer",
            str(error) or type(error).__name__,
            "start it, or give its address with --base-url",
        ) from error
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise PrerequisiteError(
            f"the server at {endpoint.base_url} refuses the key",
            f"it answered {answer.status_code}",
            "name the file with the right key: --key-file /absolute/path",
        )
    try:
        return answer.status_code, redact(json.loads(data, parse_constant=_no_number), endpoint.key)
    except (ValueError, RecursionError):
        return answer.status_code, None


def _optional(client: httpx.Client, endpoint: Endpoint, url: str) -> dict[str, Any] | None:
    """A JSON object that a server may offer; None when it does not."""
    status, value = _get(client, endpoint, url)
    return value if status == httpx.codes.OK and isinstance(value, dict) else None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _items(listing: Any) -> dict[str, dict[str, Any]]:
    """What `/v1/models` lists, by name."""
    data = listing.get("data") if isinstance(listing, dict) else None
    items = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
    return {str(item["id"]): item for item in items if "id" in item}
