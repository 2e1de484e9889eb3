"""The address of an endpoint: what leads nowhere, elsewhere than it says, or holds a secret is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigurationError
from assay.run.address import check_url, place

SECRET = "sw0rdfish"
REFUSED = [
    "",
    "127.0.0.1:8000/v1",
    "ftp://127.0.0.1/v1",
    "http:///v1",
    "http://127.0.0.1:0/v1",
    "http://127.0.0.1:99999/v1",
    "http://127.0.0.1:port/v1",
    "http://[::1/v1",
    "http://127.0.0.1:8000",
    "http://127.0.0.1:8000/v2",
    "http://127.0.0.1:8000/v1/chat/completions",
    f"http://user:{SECRET}@127.0.0.1:8000/v1",
    f"http://{SECRET}@127.0.0.1:8000/v1",
    f"http://127.0.0.1:8000/v1?key={SECRET}",
    "http://127.0.0.1:8000/v1?",
    f"http://127.0.0.1:8000/v1#{SECRET}",
    f"http://:{SECRET}@/v1",
    "http://127.0.0.1:8000\n/v1",
    "http://127.0.0.1\t:8000/v1",
    "http://127.0.0.1 /v1",
    "http://127.0.0.1/\x00/v1",
    "http://\u0435xample.test/v1",  # a Cyrillic letter
]


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_no_address_or_holds_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the endpoint's address cannot be used") as caught:
        check_url(url)
    assert SECRET not in str(caught.value)
    assert "http://HOST:PORT/v1" in caught.value.next


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/v1", "https://api.example.test/v1", "http://[::1]:8000/some/where/v1"]
)
def test_an_address_is_taken_with_and_without_its_last_slash(url: str) -> None:
    assert check_url(url) == check_url(url + "/") == url


def test_two_spellings_of_one_endpoint_are_one_place() -> None:
    assert place("http://Example.test:80/v1") == place("http://example.test/v1/")
    assert place("https://example.test/v1") == place("HTTPS://example.test:443/v1")
    assert place("http://example.test:81/v1") != place("http://example.test/v1")
    assert place("http://example.test/a/v1") != place("http://example.test/v1")


@given(st.text(max_size=40))
def test_no_text_is_taken_that_a_client_would_read_otherwise(tail: str) -> None:
    """What is accepted holds no character that the parser of addresses drops or that ends the authority."""
    url = f"http://127.0.0.1:8000{tail}/v1"
    try:
        taken = check_url(url)
    except ConfigurationError:
        return
    assert taken == url
    assert not set(taken) & set("@?#\t\r\n ")


def test_an_address_is_judged_without_loading_an_http_client() -> None:
    source = (
        "import sys, assay.planning; print(sorted({'httpx', 'docker', 'rich', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
