"""A toy server that the tests of a module share, and OpenAI's own client on it."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.server.http.running import Toy, toy_server


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    with toy_server() as running:
        yield running


@pytest.fixture(scope="module")
def client(toy: Toy) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{toy.url}/v1", api_key="none", max_retries=0) as made:
        yield made
