"""The address of an endpoint: judged by its text alone, so that reading a configuration needs no HTTP."""

from __future__ import annotations

from urllib.parse import urlsplit

from assay.errors import ConfigurationError

ADVICE = "give it as http://HOST:PORT/v1, the key in a file"


def check_url(base_url: str) -> str:
    """The URL without a trailing slash.

    Raises:
        ConfigurationError: it is not http(s) with a host, does not end in /v1, or holds a user, a query or a
            fragment (where secrets hide).
    """
    what = "the endpoint's address cannot be used"
    try:
        parts = urlsplit(base_url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        # The parser drops line ends and tabs in silence, and a client would ask somewhere else.
        fits = fits and base_url.isascii() and base_url.isprintable() and " " not in base_url
    except ValueError:
        fits = False
    if not fits:
        # Not shown: what does not parse as an address may hold a password anywhere.
        raise ConfigurationError(what, "it is not an http or https address", ADVICE)
    why = ""
    # "?", "#" and "@" themselves: an empty query parses as none.
    if parts.username or parts.password or parts.query or parts.fragment or set("?#@") & set(base_url):
        why = "it holds a user, a query or a fragment, and those would be saved in clear"
    elif not parts.path.rstrip("/").endswith("/v1"):
        why = "it does not end in /v1"
    if why:
        raise ConfigurationError(f"{what}: {parts.scheme}://{parts.hostname}{parts.path}", why, ADVICE)
    return base_url.rstrip("/")


def place(base_url: str) -> tuple[str, str, int, str]:
    """Where a checked address leads: scheme, host, port and path, equal for two spellings of one endpoint."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, str(parts.hostname), port, parts.path.rstrip("/")
