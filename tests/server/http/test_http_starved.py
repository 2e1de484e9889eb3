"""The real command without a free file descriptor: what needs none is answered, the rest is a 503."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.http import kinds, watched
from tests.server.http.kinds import Kind, chat, following, text
from tests.server.http.raw import Line
from tests.server.http.running import Command, command_server, wait_for

SMALL = ("--slots", "2", "--threads", "1")
# Figures of the process itself, which it looks up for a page of metrics and leaves out when it cannot.
OWN_FIGURES = ("/proc/self/stat", "/proc/self/limits", "/proc/self/fd")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds") / "small.gguf"
    path.write_bytes(kinds.model().encode())
    return path


def open_files(running: Command) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{running.process.pid}/fd").iterdir()}


@contextmanager
def starved(running: Command, spare: int = 0) -> Iterator[None]:
    """Leave the process so many descriptors beside those it has."""
    pid, used = running.process.pid, open_files(running)
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    free = [number for number in range(max(used) + spare + 2) if number not in used]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[spare], limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def test_no_request_imports_a_module_or_opens_a_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setenv(watched.SEEN, str(seen))
    with command_server(model, tmp_path, *SMALL, command=("tests.server.http.watched",)) as running:
        for kind in (*kinds.plain(), *kinds.refused(), *kinds.grammars()):
            with Line(running) as line:
                line.send(kind.sent)
                assert line.reply().status == kind.status, kind.name
    events = [tuple(json.loads(line)) for line in seen.read_text().splitlines()]
    assert [event for event, _ in events].count("subprocess.Popen") == len(list(kinds.grammars()))
    # A trial's null device, and the two ends of its pipes, which the interpreter opens by number.
    own = {"/dev/null", *OWN_FIGURES}
    assert [
        (event, what)
        for event, what in events
        if event != "subprocess.Popen" and what not in own and not (event == "open" and what.isdigit())
    ] == []


def test_without_a_free_descriptor_all_that_needs_none_is_answered(model: Path, tmp_path: Path) -> None:
    asked = [*kinds.plain(), *kinds.refused()]
    with command_server(model, tmp_path, *SMALL) as running, ExitStack() as stack:
        lines = [stack.enter_context(Line(running)) for kind in asked if kind.closes]
        kept = stack.enter_context(Line(running))
        for line in (*lines, kept):  # each is accepted before there is nothing to accept it with
            line.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert line.reply().status == 200
        stack.enter_context(starved(running))
        for kind in asked:
            line = lines.pop() if kind.closes else kept
            line.send(kind.sent)
            assert line.reply().status == kind.status, kind.name
        assert "Traceback" not in running.log.read_text()


def refused_for_want(line: Line, kind: Kind) -> None:
    line.send(kind.sent)
    reply = line.reply()
    assert (reply.status, reply.error["code"]) == (503, "out_of_resources"), kind.name
    assert reply.error["type"] == "unavailable_error"
    assert "too many open files" in str(reply.error["message"])
    assert reply.headers["retry-after"] == "1"


def test_a_schema_that_cannot_be_tried_is_a_503_of_its_own(model: Path, tmp_path: Path) -> None:
    known = Kind("known", chat(response_format=following({"const": "known"}), temperature=0))
    with (
        command_server(model, tmp_path, *SMALL) as running,
        Line(running) as line,
        Line(running, seconds=60) as other,
    ):
        line.send(known.sent)
        first = line.reply()
        assert first.status == 200
        whole = text("beside", max_tokens=200, ignore_eos=True, temperature=0, stream=True)
        other.send(whole)
        undisturbed = other.reply()
        used = open_files(running)
        for spare in range(5):  # a trial has at least five open at once: it fails at another place each time
            with starved(running, spare):
                other.send(whole)
                for kind in kinds.grammars():
                    refused_for_want(line, kind)
                line.send(known.sent)
                again = line.reply()
                assert (again.status, answer_of(again.body)) == (200, answer_of(first.body))
                beside = other.reply()
            assert events_of(beside.body) == events_of(undisturbed.body)
            assert open_files(running) == used  # a trial that fails leaves nothing open
        for kind in kinds.grammars():
            line.send(kind.sent)
            assert line.reply().status == 200, kind.name


def answer_of(body: bytes) -> object:
    return json.loads(body)["choices"]


def events_of(body: bytes) -> list[object]:
    """The choices of a stream's events; ids and times are each stream's own."""
    data = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    assert data.pop() == b"[DONE]"
    return [answer_of(event) for event in data]


@pytest.mark.parametrize("spare", [1, 6])
def test_a_fresh_process_short_of_descriptors_answers_whole_or_not_at_all(
    model: Path, tmp_path: Path, spare: int
) -> None:
    with command_server(model, tmp_path, *SMALL) as running:

        def tried(number: int) -> bool:
            body = {"model": "small", "prompt": f"number {number}", "max_tokens": 100, "ignore_eos": True}
            try:
                answer = httpx.post(
                    f"{running.url}/v1/completions", json={**body, "stream": True, "n": 8}, timeout=60
                )
            except httpx.TransportError:  # there was nothing to accept it with
                return False
            assert answer.status_code == 200, answer.text
            assert answer.text.endswith("data: [DONE]\n\n")
            assert answer.text.count('"finish_reason":"length"') == 8
            return True

        used = len(open_files(running))
        with starved(running, spare):
            with ThreadPoolExecutor(12) as pool:
                assert any(pool.map(tried, range(12)))
            wait_for(lambda: len(open_files(running)) <= used)
            assert tried(99)
        assert running.process.poll() is None
        assert "Traceback" not in running.log.read_text()
