"""The real command over a small real model: stopped under load, refused at start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.server.fuzz.header import Header
from tests.server.fuzz.spoken import entry, spoken
from tests.server.http.running import Command, command_server, wait_for

CLIENTS = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spoken") / "small.gguf"
    path.write_bytes(spoken().encode())
    return path


def streamed(running: Command, number: int) -> list[str]:
    """The events of one stream that asks for eight answers of 200 tokens."""
    body = {"model": "small", "prompt": f"number {number}", "max_tokens": 200, "ignore_eos": True, "n": 8}
    with (
        httpx.Client(timeout=60) as http,
        http.stream("POST", f"{running.url}/v1/completions", json={**body, "stream": True}) as got,
    ):
        if got.status_code == 503:  # it came after the signal
            return []
        assert got.status_code == 200
        return [line for line in got.iter_lines() if line]


def test_sigterm_under_load_lets_all_finish_and_lets_nobody_in(model: Path, tmp_path: Path) -> None:
    with command_server(model, tmp_path, "--slots", "4", "--threads", "1") as running:

        def waiting() -> float:
            page = httpx.get(f"{running.url}/metrics").text.splitlines()
            return next(float(line.split()[1]) for line in page if line.startswith("assay_requests_waiting "))

        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = [pool.submit(streamed, running, number) for number in range(CLIENTS)]
            wait_for(lambda: waiting() > CLIENTS * 4)
            running.process.send_signal(signal.SIGTERM)
            wait_for(lambda: httpx.get(f"{running.url}/health").status_code == 503)
            refused = httpx.post(f"{running.url}/v1/completions", json={"model": "small", "prompt": "late"})
            assert refused.status_code == 503
            assert refused.json()["error"]["type"] == "unavailable_error"
            begun = [lines for lines in (answer.result() for answer in answers) if lines]
            assert len(begun) > 12
            for lines in begun:
                assert lines[-1] == "data: [DONE]"
                assert sum('"finish_reason":"length"' in line for line in lines) == 8
        assert running.process.wait(60) == 0
        assert "Traceback" not in running.log.read_text()


def test_a_second_signal_ends_it_at_once(model: Path, tmp_path: Path) -> None:
    with command_server(model, tmp_path, "--slots", "1", "--threads", "1") as running, httpx.Client() as http:
        body = {
            "model": "small",
            "prompt": "x",
            "max_tokens": 250,
            "ignore_eos": True,
            "stream": True,
            "n": 100,
        }
        with http.stream("POST", f"{running.url}/v1/completions", json=body) as got:
            assert next(got.iter_lines())
            for _ in range(2):
                running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(60) == 0


def test_a_name_that_no_client_could_be_told_is_refused(model: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/sm\xe4ll.gguf"))
    path.write_bytes(model.read_bytes())
    words = [sys.executable, "-m", "server", str(path), "--port", "0"]
    for name, told in (((), r"'sm\udce4ll'"), (("--name", "a\x1b[31m"), r"'a\x1b[31m'")):
        done = subprocess.run([*words, *name], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, told in done.stderr, "add --name NAME" in done.stderr) == (2, True, True)
    done = subprocess.run([*words, "--plan"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split(",")[0]) == (0, r"sm\udce4ll.gguf")
    with command_server(path, tmp_path, "--name", "small") as running:
        assert httpx.get(f"{running.url}/v1/models").json()["data"][0]["id"] == "small"


def test_a_plan_that_cannot_be_written_is_an_error_and_one_that_nobody_reads_is_none(model: Path) -> None:
    command = f"'{sys.executable}' -m server '{model}' --plan"
    full, unread = (
        subprocess.run(
            ["bash", "-c", f"set -o pipefail; {each}"], capture_output=True, text=True, check=False
        )
        for each in (f"{command} > /dev/full", f"{command} | true")
    )
    assert (full.returncode, full.stderr.splitlines()[0]) == (2, "error: the plan cannot be printed")
    assert (unread.returncode, unread.stderr) == (0, "")


@pytest.fixture
def endless(model: Path, tmp_path: Path) -> Path:
    """The model with a hole behind it that takes minutes to hash."""
    path = tmp_path / "endless.gguf"
    path.write_bytes(model.read_bytes())
    os.truncate(path, 1 << 38)
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_model_is_read_ends_it_at_once(number: int, endless: Path) -> None:
    words = [sys.executable, "-m", "server", str(endless), "--port", str(port := free_port())]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: answers(port))
            assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 503
            process.send_signal(number)
            assert process.wait(20) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 503
    except httpx.TransportError:
        return False


def test_what_keeps_a_model_from_being_served_is_said_before_its_bytes_are_hashed(endless: Path) -> None:
    words = [sys.executable, "-m", "server", str(endless), "--port", "0", "--context", "257"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "a context of 257" in done.stderr


@pytest.mark.parametrize(
    ("why", "spoilt"),
    [
        ("'gguf' and no file", None),
        ("merge", spoken().with_entries(entry("tokenizer.ggml.merges", ["zz q"]))),
        ("no Jinja template", spoken().with_entries(entry("tokenizer.chat_template", "{% if %}"))),
        ("eos_token_id", spoken().with_entries(entry("tokenizer.ggml.eos_token_id", 4096))),
        ("not UTF-8", spoken().with_entries(entry("tokenizer.ggml.pre", b"\xff"))),
        ("a model in 3 files is not served", spoken().with_entries(entry("split.count", 3))),
    ],
)
def test_a_model_that_contradicts_itself_ends_the_start_with_exit_3(
    tmp_path: Path, why: str, spoilt: Header | None
) -> None:
    path, ready = tmp_path / "small.gguf", tmp_path / "ready.json"
    path.write_bytes(b"GGUF" if spoilt is None else spoilt.encode())
    done = subprocess.run(
        [sys.executable, "-m", "server", str(path), "--port", "0", "--ready-file", str(ready)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "the file ends inside" in done.stderr if spoilt is None else why in done.stderr
    assert "why:" in done.stderr
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not ready.exists()
