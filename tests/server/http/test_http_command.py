"""The real command over the real engine and model: start, answer, refuse, stop."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import jsonschema
import numpy as np
import openai
import pytest

from server.identity import file_sha256, fingerprint
from tests.server.http.running import Command, command_server, wait_for

CANARY = "canary-5f1c9a7e"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
QUESTIONS = (
    "What is the capital of France?",
    "Count from one to ten.",
    "Write a haiku about the sea.",
    "def fibonacci(n):",
    "Translate 'good morning' to Spanish.",
    "What is 17 + 25?",
    "List three primary colours.",
    "Why is the sky blue? Explain briefly, in two sentences, to a child who has never been outside.",
)


def key_file(folder: Path) -> Path:
    path = folder / "key"
    path.write_text(CANARY)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def server(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    folder = tmp_path_factory.mktemp("command")
    with command_server(
        model_path, folder, "--name", "smollm2-135m", "--key-file", str(key_file(folder))
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Command) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=CANARY, max_retries=0) as made:
        yield made


def answer(client: openai.OpenAI, question: str, **parameters: object) -> str:
    given = client.chat.completions.create(
        model="smollm2-135m",
        messages=[{"role": "user", "content": question}],
        **{"temperature": 0, "max_tokens": 24, **parameters},
    )
    return given.model_dump_json(include={"choices"})


def test_the_model_answers_in_words(client: openai.OpenAI) -> None:
    text = "The Eiffel Tower is in the city of"
    made = client.completions.create(model="smollm2-135m", prompt=text, temperature=0, max_tokens=4)
    assert made.choices[0].text.startswith(" Paris")


def test_answers_are_the_same_bytes_at_concurrency_one_and_eight(client: openai.OpenAI) -> None:
    scored = {"logprobs": True, "top_logprobs": 2}
    alone = [answer(client, question, **scored) for question in QUESTIONS]
    with ThreadPoolExecutor(8) as pool:
        beside = list(pool.map(lambda question: answer(client, question, **scored), QUESTIONS))
    assert alone == beside
    assert len(set(alone)) == len(QUESTIONS)


def test_a_seeded_answer_is_the_same_beside_others(client: openai.OpenAI) -> None:
    drawn = {"temperature": 1.0, "top_p": 0.9, "seed": 11}
    alone = answer(client, QUESTIONS[2], **drawn)
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(answer, client, question) for question in QUESTIONS[3:6]]
        assert answer(client, QUESTIONS[2], **drawn) == alone
        assert all(other.result() for other in others)


def test_a_text_is_as_likely_scored_as_generated(client: openai.OpenAI) -> None:
    made = client.completions.create(
        model="smollm2-135m", prompt="The capital of France is", temperature=0, max_tokens=6, logprobs=1
    ).choices[0]
    whole = client.completions.create(
        model="smollm2-135m",
        prompt="The capital of France is" + made.text,
        max_tokens=0,
        echo=True,
        logprobs=1,
    ).choices[0]
    assert made.logprobs is not None
    assert whole.logprobs is not None
    assert whole.logprobs.tokens is not None
    assert whole.logprobs.tokens[-6:] == made.logprobs.tokens
    assert whole.logprobs.token_logprobs is not None
    assert whole.logprobs.token_logprobs[-6:] == made.logprobs.token_logprobs


def test_the_real_vocabulary_follows_a_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {
            "capital": {"type": "string", "maxLength": 20},
            "rivers": {"type": "array", "items": {"enum": ["Seine", "Łódź", "日本"]}, "maxItems": 3},
            "people": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
        },
        "required": ["capital", "rivers", "people"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    for parameters in ({"temperature": 0}, {"temperature": 1.3, "seed": 8}):
        asked = {"max_tokens": 150, "response_format": form, **parameters}
        alone = answer(client, "Describe France as JSON.", **asked)
        choice = json.loads(alone)["choices"][0]
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)
        with ThreadPoolExecutor(3) as pool:
            beside = pool.submit(answer, client, QUESTIONS[0])
            assert answer(client, "Describe France as JSON.", **asked) == alone
            assert beside.result()


def test_named_ids_are_scored_as_the_echo_scores_them(client: openai.OpenAI) -> None:
    prompt = list(np.random.default_rng(3).integers(1000, 40_000, 300))
    ids = [int(token) for token in prompt]
    asked = {"model": "smollm2-135m", "prompt": ids, "max_tokens": 0}
    echoed = client.completions.create(**asked, echo=True, logprobs=1).choices[0].logprobs
    wanted = [[], *([token] for token in ids[1:])]
    named = client.completions.create(**asked, extra_body={"prompt_logprob_ids": wanted}).choices[0]
    scores = (named.model_extra or {})["prompt_scores"]
    assert echoed is not None
    assert scores["logprobs"][1:] == [
        [float(np.float32(value))] for value in (echoed.token_logprobs or [])[1:]
    ]
    best = [max(top.values()) for top in (echoed.top_logprobs or [])[1:] if top]
    assert len(best) == len(scores["top_ids"]) - 1 == 299


def test_a_template_without_tools_refuses_them(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    with pytest.raises(openai.BadRequestError) as caught:
        answer(client, "x", tools=[tool])
    assert caught.value.code == "tools_not_supported"


def test_the_identity_is_by_digest_and_gives_the_fingerprint(server: Command, client: openai.OpenAI) -> None:
    headers = {"authorization": f"Bearer {CANARY}"}
    identity = httpx.get(f"{server.url}/identity", headers=headers).json()
    assert identity["schema"] == "assay/identity/v1"
    assert identity["model"] == {
        "name": "smollm2-135m",
        "file_sha256": SHA256,
        "size_bytes": 98_362_432,
        "architecture": "llama",
        "quantisation": "Q4_1",
    }
    assert len(identity["engine"]["library_sha256"]) == 64
    assert identity["settings"]["context"] == 8192
    assert identity["settings"]["kv_dtype"] in ("f16", "f32")
    assert identity["settings"]["head"] == "stored"
    given = client.completions.create(model="smollm2-135m", prompt="a", max_tokens=1)
    assert given.system_fingerprint == identity["system_fingerprint"] == fingerprint(identity)
    other = {**identity, "settings": {**identity["settings"], "threads": 99, "slots": 99}}
    assert fingerprint(other) == identity["system_fingerprint"]
    other = {**identity, "model": {**identity["model"], "file_sha256": "0" * 64}}
    assert fingerprint(other) != identity["system_fingerprint"]


def test_the_key_shows_in_no_log_and_no_argument(server: Command, client: openai.OpenAI) -> None:
    answer(client, "hello")
    httpx.get(f"{server.url}/v1/models", headers={"authorization": f"Bearer {CANARY}x"})
    httpx.get(f"{server.url}/v1/models?key={CANARY}")
    assert CANARY not in server.log.read_text()
    for name in ("cmdline", "environ"):
        assert CANARY.encode() not in Path(f"/proc/{server.process.pid}/{name}").read_bytes()


def test_sigterm_lets_an_answer_finish_and_exits_0(model_path: Path, tmp_path: Path) -> None:
    with command_server(
        model_path, tmp_path, "--threads", "1", "--slots", "2", "--context", "512"
    ) as running:
        name = model_path.stem
        body = {"model": name, "prompt": "Once", "max_tokens": 60, "stream": True, "ignore_eos": True}
        with (
            httpx.Client(timeout=60) as http,
            http.stream("POST", f"{running.url}/v1/completions", json=body) as got,
        ):
            lines = got.iter_lines()
            assert next(lines).startswith("data: ")
            running.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert running.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/health")
        assert stat.S_IMODE((tmp_path / "ready.json").stat().st_mode) == 0o600
        assert [path.name for path in tmp_path.glob(".*")] == []


def test_sigterm_finishes_the_streams_under_way_and_turns_new_requests_away(
    model_path: Path, tmp_path: Path
) -> None:
    with command_server(
        model_path, tmp_path, "--threads", "1", "--slots", "2", "--context", "1024"
    ) as running:
        url, name = f"{running.url}/v1/completions", model_path.stem
        body = {"model": name, "prompt": "Once", "max_tokens": 300, "stream": True, "ignore_eos": True}
        idle = httpx.Client(base_url=running.url)
        assert idle.get("/health").status_code == 200

        def finished(_: int) -> list[str]:
            with httpx.Client(timeout=60) as http, http.stream("POST", url, json=body) as got:
                lines = got.iter_lines()
                begun = [next(lines)]
                started.release()
                return [*begun, *(line for line in lines if line)]

        started = threading.Semaphore(0)
        with ThreadPoolExecutor(2) as pool:
            streams = [pool.submit(finished, number) for number in range(2)]
            for _ in streams:
                assert started.acquire(timeout=60)
            running.process.send_signal(signal.SIGTERM)
            wait_for(lambda: httpx.get(f"{running.url}/health").status_code == 503)
            # Over a new connection, and over one that was open before.
            for refused in (httpx.post(url, json=body), idle.post("/v1/completions", json=body)):
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "shutting_down"
                assert int(refused.headers["retry-after"]) >= 1
            assert httpx.get(f"{running.url}/metrics").status_code == 200
            for stream in streams:
                lines = stream.result()
                assert lines[-1] == "data: [DONE]"
                assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert running.process.wait(60) == 0
        idle.close()


def test_a_second_signal_ends_the_server_at_once(model_path: Path, tmp_path: Path) -> None:
    with command_server(
        model_path, tmp_path, "--threads", "1", "--slots", "1", "--context", "8192"
    ) as running:
        body = {"model": model_path.stem, "prompt": "Once", "stream": True, "ignore_eos": True}
        with (
            httpx.Client(timeout=60) as http,
            http.stream("POST", f"{running.url}/v1/completions", json={**body, "max_tokens": 8000}) as got,
        ):
            lines = got.iter_lines()
            assert next(lines).startswith("data: ")
            running.process.send_signal(signal.SIGTERM)
            wait_for(lambda: httpx.get(f"{running.url}/health").status_code == 503)
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(30) == 0


def test_assay_serve_is_this_server_over_a_pinned_model(model_path: Path, tmp_path: Path) -> None:
    words = ("--slots", "1", "--context", "300", "--speculate", "smollm2-135m")
    with command_server("smollm2-135m", tmp_path, *words, command=("assay.cli", "serve")) as running:
        assert httpx.get(f"{running.url}/identity").json()["settings"]["speculation"]["file_sha256"] == SHA256
        assert httpx.get(f"{running.url}/v1/models").json()["data"][0]["id"] == "smollm2-135m"
        assert json.loads((tmp_path / "ready.json").read_text())["pid"] == running.process.pid
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0


def refused(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "server", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert CANARY not in done.stderr
    return done.returncode, done.stderr


def test_a_model_that_is_missing_or_is_none_is_named(tmp_path: Path) -> None:
    code, said = refused(str(tmp_path / "absent.gguf"))
    assert (code, "no such file" in said, "next:" in said) == (3, True, True)
    code, said = refused(str(tmp_path))
    assert (code, "directory" in said) == (3, True)
    (tmp_path / "text.gguf").write_text("hello, I am a text")
    code, said = refused(str(tmp_path / "text.gguf"))
    assert (code, "not a GGUF file" in said) == (3, True)


def test_a_damaged_model_is_refused_by_the_engine(model_path: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    with model_path.open("rb") as whole:
        short.write_bytes(whole.read(1 << 20))
    code, said = refused(str(short), "--port", "0", "--ready-file", str(tmp_path / "ready"))
    assert (code, "cannot load" in said, "why:" in said) == (3, True, True)
    assert not (tmp_path / "ready").exists()


def test_a_port_in_use_is_named(model_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused(str(model_path), "--port", str(port))
    assert (code, f"127.0.0.1:{port}" in said, "another process has the port" in said) == (3, True, True)


def test_an_unsafe_key_file_or_an_open_address_is_refused(model_path: Path, tmp_path: Path) -> None:
    path = key_file(tmp_path)
    path.chmod(0o644)
    code, said = refused(str(model_path), "--key-file", str(path))
    assert (code, "0644" in said, f"chmod 600 '{path}'" in said) == (2, True, True)
    code, said = refused(str(model_path), "--host", "0.0.0.0")
    assert (code, "without a key" in said) == (2, True)
    code, said = refused(str(model_path), "--ready-file", str(tmp_path / "no" / "ready"))
    assert (code, "mkdir -p" in said) == (2, True)
    code, said = refused(str(model_path), "--port", "70000")
    assert (code, "65535" in said) == (2, True)
    code, said = refused(str(model_path), "--ready-file", str(tmp_path))
    assert (code, "it is a directory" in said) == (2, True)
    code, said = refused(str(model_path), "--port", "0", "--ready-file", str(tmp_path / ("r" * 250)))
    assert (code, "File name too long" in said) == (2, True)


def test_numbers_that_no_engine_has_are_refused_as_they_were_typed(model_path: Path) -> None:
    for words, told in (
        (("--slots", "1001", "--kept-slots", "24"), "1001 answers at once and 24 kept"),
        (("--slots", "1025"), "1025 answers at once and 0 kept"),
    ):
        code, said = refused(str(model_path), "--port", "0", *words)
        assert (code, told in said) == (2, True)
    for option in ("--threads", "--context"):
        code, said = refused(str(model_path), "--port", "0", option, str(2**32 + 2))
        assert (code, f"{2**32 + 2} is no 32-bit number" in said) == (2, True)
    for option, value in (("--threads", "257"), ("--context", "8193")):
        code, said = refused(str(model_path), "--port", "0", option, value)
        assert (code, value in said, "--help" in said) == (2, True, True)
    code, said = refused(str(model_path), "--port", "0", "--isa", "avx9")
    assert (code, "avx512" in said) == (2, True)


def test_the_file_digest_is_that_of_the_file(model_path: Path) -> None:
    assert file_sha256(model_path) == SHA256
