"""No secret stands in a suite: not by its name, not by its look, not in an address, not in a comment.

Mistake 2 of the coordinators that were seen: user names in addresses, values of headers and free-form notes
were saved in clear. No message repeats what was found.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest
from written import WHOLE, changed, refusal, write

from assay.paths import CONFIGS
from assay.suite.read import read_suite
from assay.suite.secret import named, secrets_in, secrets_in_text, told_by

CANARY = "canary-of-a-secret-0451"
FREE = (
    "job.0.backend_args",
    "job.0.generation.extra_body",
    "target.local.provenance",
    "target.local.request",
)
NAMES = [
    "api_key",
    "apiKey",
    "API-KEY",
    "x-api-key",
    "X_Api_Key",
    "openai_api_key",
    "Authorization",
    "proxy-authorization",
    "authorization_",
    "token",
    "access_token",
    "hf_token",
    "password",
    "db_password",
    "secret",
    "client_secret",
    "private_key",
    "cookie",
    "headers",
    "extra_headers",
    "default-headers",
    "header",
]


@pytest.mark.parametrize("place", [*FREE, "target.local", "job.0", "job.0.generation", "running", "defaults"])
@pytest.mark.parametrize("name", ["api_key", "Authorization", "x-api-key", "password"])
def test_a_name_that_holds_a_secret_is_refused_in_every_table(tmp_path: Path, place: str, name: str) -> None:
    said = refusal(write(tmp_path, (f"{place}.{name}", CANARY)))
    assert "holds a secret" in said
    assert f".{name}: its value would be a secret in clear" in said
    assert 'api_key_env = "NAME"' in said
    assert CANARY not in said


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_secrets_are_known_in_every_spelling(name: str) -> None:
    assert named(name) is not None


def test_no_name_that_a_suite_has_is_taken_for_a_secrets(tmp_path: Path) -> None:
    """Also those that only look like one: they name a variable or a file, or count tokens."""
    for name in (
        "api_key_env",
        "key_file",
        "serpapi_api_key_env",
        "max_tokens",
        "tokens",
        "token_limit",
        "keys",
    ):
        assert named(name) is None
    assert list(secrets_in(WHOLE, {})) == []


@pytest.mark.parametrize("name", ["X-Anything", "Accept"])
def test_the_value_of_any_header_is_refused(tmp_path: Path, name: str) -> None:
    for table in ("headers", "extra_headers", "http_headers"):
        said = refusal(write(tmp_path, (f"job.0.backend_args.{table}", {name: CANARY})))
        assert f".{table}: headers are not taken" in said
        assert CANARY not in said


# Made of parts, so that nobody's scanner takes this file for a leak.
SHAPES = {
    "openai": "sk-" + "proj-AbCd0123456789",
    "hub": "hf_" + "AbCdEfGhIjKlMnOpQrSt",
    "github": "ghp_" + "AbCdEfGhIjKlMnOpQrSt0123",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "google": "AIza" + "SyA-0123456789_0123456789abcdefghij",
    "signed": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0" + ".c2lnbmF0dXJl",
    "private": "-----BEGIN " + "PRIVATE KEY-----",
    "bearer": "Bearer " + "abcdef0123456789",
    "basic": "Basic " + "dXNlcjpwYXNz0123",
    "own": "assay-" + "0123456789abcdef0123456789abcdef",
    "user": "http://user:" + "pass@example.test/",
    "query": "https://example.test/data?" + "api_key=abc",
    "random": "k7Qw9ZpL2mXv8RtB4nYc6HdJ",
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("place", [*FREE[:3], "description"])
def test_what_looks_like_a_key_is_refused_wherever_free_text_may_stand(
    tmp_path: Path, kind: str, place: str
) -> None:
    where = place if place == "description" else f"{place}.note"
    said = refusal(write(tmp_path, (where, f"see {SHAPES[kind]} here")))
    assert "holds a secret" in said
    assert SHAPES[kind] not in said


@pytest.mark.parametrize("kind", SHAPES)
def test_a_key_deep_in_a_list_or_as_a_name_is_found_too(tmp_path: Path, kind: str) -> None:
    said = refusal(write(tmp_path, ("job.0.backend_args.a", {"b": [[{"c": SHAPES[kind]}]]})))
    assert "job[1].backend_args.a.b[1][1].c: it holds" in said
    said = refusal(write(tmp_path, ("job.0.backend_args", {SHAPES[kind]: 1})))
    assert "a key of it is" in said
    assert SHAPES[kind] not in said


@pytest.mark.parametrize(
    "line", ['# api_key = "hunter2hunter2"', "# Authorization: abcdefgh", f"# {SHAPES['hub']}"]
)
def test_a_key_in_a_comment_is_refused_since_the_text_is_kept(tmp_path: Path, line: str) -> None:
    path = write(tmp_path)
    path.write_text(f"{line}\n{path.read_text('utf-8')}", "utf-8")
    said = refusal(path)
    assert "line 1: it" in said
    assert line[2:] not in said


def test_the_value_of_a_secret_variable_is_refused_by_the_variables_name(tmp_path: Path) -> None:
    path = write(tmp_path, ("job.0.backend_args.note", f"x{CANARY}x"))
    said = refusal(path, {"MODEL_API_KEY": CANARY})
    assert "job[1].backend_args.note: it holds the value of the variable MODEL_API_KEY" in said
    assert CANARY not in said
    assert read_suite(str(path), {"HOME": CANARY, "SHORT_KEY": "x"}).suite.name == "try"


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{CANARY}@127.0.0.1:1/v1",
        f"http://{CANARY}@127.0.0.1:1/v1",
        f"http://127.0.0.1:1/v1?key={CANARY}",
        f"http://127.0.0.1:1/v1?x={CANARY}",
        f"http://127.0.0.1:1/v1#{CANARY}",
        f"http://:{CANARY}/v1",
    ],
)
def test_an_address_with_a_key_in_it_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    for value in (url, ["http://127.0.0.1:2/v1", url]):
        assert CANARY not in refusal(write(tmp_path, ("target.local.base_url", value)))


def test_a_key_where_a_variables_name_belongs_is_not_repeated(tmp_path: Path) -> None:
    assert CANARY not in refusal(write(tmp_path, ("target.local.api_key_env", CANARY)))
    for capitals in (SHAPES["aws"], "Q7K2M9X4C1V8B3N6"):  # they look like a variable's name
        assert capitals not in refusal(write(tmp_path, ("target.local.api_key_env", capitals)))


@pytest.mark.parametrize("size", [20, 24, 32, 48])
def test_a_random_key_as_servers_make_them_is_recognised(size: int) -> None:
    """Nearly each: a key may happen to look like a word."""
    source = random.Random(size)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        made = [encode(source.randbytes(size)).decode() for _ in range(500)]
        assert sum(told_by(key, {}) is not None for key in made) >= 450


PLAIN = [
    "0123456789abcdef" * 4,
    "a28731b",
    "sha256:" + "0f" * 32,
    "Qwen3-235B-A22B-Instruct-2507-FP8",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
    "/models/Qwen3.6-35B-A3B/base-hf-bf16/model-00001-of-00014.safetensors",
    "meta-llama/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
    "Qwen3-4B-W4A16-G128-KV8-A8W8-IQ2_XS-Q4_K_M",
    "AntiDisestablishmentarianismInstructVariant",
    "basic arithmetic problems of a bearer",
    "http://127.0.0.1:18080/v1",
    "e-mail me at name@example.test",
    "task-oriented risk-assessment disk-full",
    "{question}\nAnswer with the key of your choice: A, B, C or D.",
]


@pytest.mark.parametrize("text", PLAIN)
def test_digests_names_paths_and_prompts_are_no_keys(text: str) -> None:
    assert told_by(text, {}) is None


@pytest.mark.parametrize("path", sorted((CONFIGS).rglob("*.toml")), ids=lambda path: path.name)
def test_no_configuration_of_this_repository_is_taken_for_a_secret(path: Path) -> None:
    assert list(secrets_in_text(path.read_text("utf-8"), {})) == []


def test_a_suite_without_secrets_is_taken_as_it_is(tmp_path: Path) -> None:
    value: dict[str, Any] = changed()
    assert list(secrets_in(value, {"MODEL_API_KEY": CANARY})) == []
    assert (
        read_suite(str(write(tmp_path)), {"MODEL_API_KEY": CANARY}).suite.targets[0].api_key_env
        == "MODEL_API_KEY"
    )
