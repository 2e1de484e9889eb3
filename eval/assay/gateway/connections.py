"""Connections to targets: one client for each request in flight, used again for the next.

The HTTP library's pool looks at each of its connections for each request, which with a thousand in flight
costs more than all the rest; so each client here holds one connection. The one used last is lent first: it
is the least likely to have been closed by its server meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

CONNECT_SECONDS = 10.0
# Shorter than servers keep an idle connection, so that hardly ever one is used as it is closed.
IDLE_SECONDS = 2.0


class Connections:
    """Clients by endpoint, lent and taken back."""

    def __init__(self) -> None:
        # No certificates, proxies or cookies that the environment or an earlier answer names.
        self._context = httpx.create_ssl_context(trust_env=False)
        self._idle: dict[str, list[httpx.AsyncClient]] = {}

    @contextmanager
    def lend(self, base_url: str) -> Iterator[httpx.AsyncClient]:
        """A client for one request to an endpoint."""
        idle = self._idle.setdefault(base_url, [])
        client = idle.pop() if idle else self._new()
        try:
            yield client
        finally:
            idle.append(client)

    def _new(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=self._context,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_SECONDS
            ),
        )

    async def close(self) -> None:
        """Close them all; none may be lent."""
        clients = [client for idle in self._idle.values() for client in idle]
        self._idle.clear()
        await asyncio.gather(*(client.aclose() for client in clients))
