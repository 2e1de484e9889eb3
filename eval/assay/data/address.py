"""Which hosts may be asked: over TLS any, without it only this machine (where a stand-in may answer)."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from assay.errors import ConfigurationError


def endpoint(variable: str, default: str) -> str:
    """A host's base URL: what the variable says, else the default; without a slash at its end.

    Raises:
        ConfigurationError: the variable holds no URL that may be asked.
    """
    value = (os.environ.get(variable) or default).rstrip("/")
    if not allowed(value):
        raise ConfigurationError(
            f"{variable} is {shown(value)!r}, which may not be asked for task data",
            "only https, or http on this machine (127.0.0.1, localhost), and no name or password in it",
            f"unset {variable}",
        )
    return value


def allowed(url: str) -> bool:
    """Whether the URL may be asked: https, or http on loopback, and no credentials in it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Read for its error: a port that is no number or out of range.
        named = parts.port == 0 or parts.username is not None or parts.password is not None
    except ValueError:
        return False
    return bool(host) and not named and (parts.scheme == "https" or (parts.scheme == "http" and local(host)))


def local(host: str) -> bool:
    """Whether the host is this machine by its very name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def origin(url: str) -> tuple[str, str, int | None]:
    """What a credential may not leave: scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port


def shown(url: str) -> str:
    """The URL without its query, fragment and credentials, which may be secrets (a signed address is one)."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "no URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
