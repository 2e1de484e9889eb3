"""Bytes that are no sound request: each is answered with a documented 4xx in OpenAI's form, or ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server import body as body_module
from server.body import MAX_BODY_BYTES
from server.protocol import Patience
from tests.server.http.raw import CHAT, Line, asked, post
from tests.server.http.running import Toy, toy_server, wait_for

QUICK = Patience(head_s=0.3, stall_s=0.5, linger_s=0.3, head_bytes=1 << 14)


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    with toy_server(patience=QUICK) as running:
        yield running


@pytest.fixture
def quick_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_SECONDS", 0.3)


def alive(toy: Toy) -> bool:
    with Line(toy) as line:
        line.send(post(CHAT, asked("say:alive")))
        reply = line.reply()
    return reply.status == 200 and b"alive" in reply.body


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "invalid_http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), 400, "invalid_http"),
        (b"GET / HTTP/9.9\r\n\r\n", 400, "invalid_http"),
        (b"GET http://[::bad/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_http"),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_http"),
        (b"CONNECT example:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n", 400, "invalid_http"),
        (post(CHAT, b"{}", "Content-Length: 3"), 400, "invalid_http"),
        (post(CHAT, b"{}", "Transfer-Encoding: chunked"), 400, "invalid_http"),
        (post(CHAT, b"", length=-1), 400, "invalid_http"),
        (post(CHAT, b"", length=10**30), 400, "invalid_http"),
        (b"GET /nothing HTTP/1.1\r\nHost: [::\r\n\r\n", 404, "not_found"),
        (b"GET /%ff%00%2e%2e/ HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"),
        (b"GET /health/ HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"),
        (b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"),
        (b"DELETE /v1/models/toy HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (1 << 15) + b"\r\n\r\n", 431, "head_too_large"),
        (b"GET /" + b"y" * (1 << 15), 431, "head_too_large"),
        (b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 4000, 431, "head_too_large"),
        (post(CHAT, b"", length=MAX_BODY_BYTES + 1), 413, "body_too_large"),
        (post(CHAT, b'{"model": "toy", "model": "toy"}'), 400, None),
        (post(CHAT, b'{"messages": [{"role": "user", "role": "system"}]}'), 400, None),
        (post(CHAT, b'{"model": "\xed\xa0\x80"}'), 400, None),
        (post(CHAT, b'\xef\xbb\xbf{"model": "toy"}'), 400, None),
        (post(CHAT, b"{}", "Content-Encoding: br"), 415, "content_encoding"),
    ],
)
def test_a_hostile_request_is_refused_in_openais_form(
    toy: Toy, sent: bytes, status: int, code: str | None
) -> None:
    with Line(toy) as line:
        line.send(sent)
        reply = line.reply()
        assert (reply.status, reply.error["code"]) == (status, code)
        if status in (413, 431) or code == "invalid_http":
            assert reply.headers["connection"] == "close"
            assert line.ended()
    assert alive(toy)


def test_a_head_request_has_no_body(toy: Toy) -> None:
    with Line(toy) as line:
        line.send(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        head = line._until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert line.reply().body == b'{"status":"ok"}'


def test_pipelined_requests_are_answered_in_order(toy: Toy) -> None:
    with Line(toy) as line:
        line.send(b"".join(post(CHAT, asked(f"say:{number}")) for number in range(6)))
        for number in range(6):
            assert f'"content":"{number}"'.encode() in line.reply().body


def test_bytes_behind_a_request_do_not_answer_for_it(toy: Toy) -> None:
    toy.engine.gate.clear()
    with Line(toy) as line:
        line.send(post(CHAT, asked("say:x")) + b"nonsense\r\n\r\n")
        assert line.ended()
        toy.engine.gate.set()
    toy.wait_idle()


def test_an_upgrade_that_is_not_wanted_changes_nothing(toy: Toy) -> None:
    with Line(toy) as line:
        line.send(post(CHAT, asked("say:same"), "Connection: Upgrade", "Upgrade: h2c"))
        assert b"same" in line.reply().body


def test_a_client_that_says_nothing_is_let_go(toy: Toy) -> None:
    with Line(toy) as line:
        assert line.ended()


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_head_that_never_ends_is_a_408(toy: Toy, before: bytes) -> None:
    with Line(toy) as line:
        if before:
            line.send(before)
            assert line.reply().status == 200
        line.send(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        reply = line.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert line.ended()


@pytest.mark.usefixtures("quick_body")
@pytest.mark.parametrize(
    "sent",
    [
        post(CHAT, b'{"model"', length=5000),
        post(CHAT, b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
        + b'6\r\n{"a": \r\n',
        post(CHAT, b"", "Expect: 100-continue", length=100),
    ],
    ids=["length", "chunked", "expect"],
)
def test_a_body_that_never_ends_is_a_408(toy: Toy, sent: bytes) -> None:
    with Line(toy) as line:
        line.send(sent)
        reply = line.reply()
        if reply.status == 100:
            reply = line.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert line.ended()
    toy.wait_idle()


def test_a_body_behind_an_early_answer_is_read_for_a_moment_only(toy: Toy) -> None:
    with Line(toy) as line:
        line.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert line.reply().status == 404

        def refused() -> bool:
            try:
                line.send(b"4\r\nmore\r\n")
            except OSError:
                return True
            return False

        wait_for(refused)


def test_a_chunked_body_past_the_bound_is_a_413(toy: Toy) -> None:
    with Line(toy) as line:
        line.send(post(CHAT, b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b""))
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(MAX_BODY_BYTES // (1 << 20) + 2):
                line.send(chunk)
        except OSError:
            pass
        assert line.reply().status == 413
