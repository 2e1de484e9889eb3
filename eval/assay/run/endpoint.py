"""The server as a run sees it: asked over HTTP only, before and after each entry.

What the server says about itself is recorded as `claimed`: Assay did not measure it. A server without
`/identity` (any other OpenAI-compatible one) is recorded as offering none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from assay.errors import ConfigurationError, PrerequisiteError
from assay.names import nearest
from assay.run.key import Key

TIMEOUT = httpx.Timeout(30.0, connect=5.0)


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server.

    Attributes:
        base_url: Ends in `/v1`.
        model: The name asked for.
        key: The secret it wants, None for an open server.
    """

    base_url: str
    model: str
    key: Key | None


@dataclass(frozen=True)
class Identity:
    """What a server says it is.

    Attributes:
        claimed: The whole `/identity` document, None when the server offers none.
        models: The names `/v1/models` lists.
    """

    claimed: dict[str, Any] | None
    models: tuple[str, ...]

    @property
    def fingerprint(self) -> str | None:
        """The `system_fingerprint` it claims."""
        value = (self.claimed or {}).get("system_fingerprint")
        return value if isinstance(value, str) else None


def check_url(base_url: str) -> str:
    """The URL without a trailing slash.

    Raises:
        ConfigurationError: it is not http(s) with a host, does not end in /v1, or holds a user, a query or a
            fragment (where secrets hide).
    """
    what = "the endpoint's address cannot be used"
    advice = "give it as http://HOST:PORT/v1, the key in a file"
    try:
        parts = urlsplit(base_url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        # Not shown: what does not parse as an address may hold a password anywhere.
        raise ConfigurationError(what, "it is not an http or https address", advice)
    why = ""
    if parts.username or parts.password or parts.query or parts.fragment:
        why = "it holds a user, a query or a fragment, and those would be saved in clear"
    elif not parts.path.rstrip("/").endswith("/v1"):
        why = "it does not end in /v1"
    if why:
        raise ConfigurationError(f"{what}: {parts.scheme}://{parts.hostname}{parts.path}", why, advice)
    return base_url.rstrip("/")


def probe(endpoint: Endpoint) -> Identity:
    """Ask the server who it is, and whether it knows the key and the model.

    Raises:
        PrerequisiteError: it does not answer, refuses the key, or does not list the model.
    """
    headers = {"Authorization": f"Bearer {endpoint.key.reveal()}"} if endpoint.key else {}
    root = endpoint.base_url.removesuffix("/v1")
    with httpx.Client(headers=headers, timeout=TIMEOUT, trust_env=False) as client:
        listing = _get(client, endpoint, f"{endpoint.base_url}/models")
        if listing.status_code != httpx.codes.OK:
            raise refused(endpoint, f"/v1/models answered {listing.status_code}")
        models = _names(listing)
        if endpoint.model not in models:
            raise PrerequisiteError(
                f'the server at {endpoint.base_url} does not serve "{endpoint.model}"',
                nearest(endpoint.model, models),
                "give the right name with --model, or start the server that has it",
            )
        document = _get(client, endpoint, f"{root}/identity")
        claimed: dict[str, Any] | None = None
        if document.status_code == httpx.codes.OK:
            try:
                value = document.json()
            except ValueError:
                value = None
            if isinstance(value, dict) and str(value.get("schema", "")).startswith("assay/identity/"):
                claimed = value
        return Identity(claimed, models)


def refused(endpoint: Endpoint, why: str) -> PrerequisiteError:
    """The error for a server that answers, but not as it must."""
    return PrerequisiteError(
        f"the server at {endpoint.base_url} refuses", why, "check that the address is the server you mean"
    )


def _get(client: httpx.Client, endpoint: Endpoint, url: str) -> httpx.Response:
    try:
        answer = client.get(url)
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
    return answer


def _names(listing: httpx.Response) -> tuple[str, ...]:
    try:
        return tuple(str(item["id"]) for item in listing.json()["data"])
    except (ValueError, KeyError, TypeError):
        return ()
