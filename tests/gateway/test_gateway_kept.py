"""A journal as its readers find it: requests and answers byte for byte, or an error that names the fault."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import zlib
from pathlib import Path

import pytest
from lanes import child, fill, journal, lane, pool
from scripted_target import Reply, Upstream, completion

from assay.errors import VerificationError
from assay.gateway import kept as kept_module
from assay.gateway.kept import kept_answers


def test_what_was_asked_is_kept_byte_for_byte_beside_its_answer(tmp_path: Path) -> None:
    """Spaces, order and letters of the request are the evaluator's: who asks again asks the same bytes."""
    noise = random.Random(5).randbytes(40 << 10).hex()
    bodies = [
        b'{"messages": [ {"content":"caf\xc3\xa9\\u00e9"} ],  "model":"m", "model":"m"}',
        json.dumps({"messages": [{"content": noise}]}).encode(),
        b'{"messages": [{"content": "\xff"}]}',
    ]

    async def scenario(base_url: str) -> None:
        async with lane(tmp_path, pool(base_url)) as opened, child(opened) as client:
            for body in bodies:
                headers = {"accept": "text/event-stream", "x-own": "secret", "cookie": "secret"}
                (await client.post("/chat/completions?a=b", content=body, headers=headers)).raise_for_status()

    with Upstream(lambda asked: Reply(body=completion(str(asked.number)))) as server:
        asyncio.run(scenario(server.base_url))
    kept = list(kept_answers(tmp_path / "j.jsonl"))
    assert [one.request.body for one in kept] == bodies
    assert [said_by(one.answer.body) for one in kept] == ["0", "1", "2"]
    assert {(one.request.method, one.request.path) for one in kept} == {("POST", "/v1/chat/completions?a=b")}
    assert {tuple(sorted(one.request.headers)) for one in kept} == {
        ((b"accept", b"text/event-stream"), (b"content-type", b"application/json"))
    }
    assert [one.endpoint for one in (each.answer for each in kept)] == [server.base_url] * 3
    assert [line["request"]["form"] for line in journal(tmp_path)] == ["text", "deflate", "deflate"]
    assert (tmp_path / "j.jsonl").stat().st_size < 2 * len(noise)
    assert b"secret" not in (tmp_path / "j.jsonl").read_bytes()


def said_by(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


def test_a_journal_of_an_older_form_is_refused_by_its_name(tmp_path: Path) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    path.write_text(path.read_text().replace("assay/answer/v2", "assay/answer/v1"))
    with pytest.raises(VerificationError, match="of the form assay/answer/v1, and this version reads"):
        list(kept_answers(path))


def test_reading_a_journal_changes_nothing_and_refuses_what_a_resume_would_mend(tmp_path: Path) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[0] + lines[1])
    assert [said_by(one.answer.body) for one in kept_answers(path)] == ["a#0", "b#1"]
    assert path.read_bytes() == lines[0] + lines[0] + lines[1]
    for broken in (lines[0] + lines[1][:-1], lines[1], lines[0] + lines[2]):
        path.write_bytes(broken)
        with pytest.raises(VerificationError, match="not as it was written"):
            list(kept_answers(path))
        assert path.read_bytes() == broken


@pytest.mark.parametrize("tail", [b"x", zlib.compress(b"more")])
def test_a_deflated_body_is_one_whole_stream_and_no_longer_than_an_answer_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: bytes
) -> None:
    fill(tmp_path)
    path = tmp_path / "j.jsonl"
    (first, *_) = path.read_bytes().splitlines(keepends=True)

    def deflated(data: bytes) -> None:
        value = json.loads(first)
        value.update(form="deflate", body=base64.b64encode(data).decode())
        path.write_bytes(json.dumps(value).encode() + b"\n")

    whole = zlib.compress(json.loads(first)["body"].encode())
    deflated(whole)
    assert len(list(kept_answers(path))) == 1
    deflated(whole + tail)
    with pytest.raises(VerificationError, match="cannot be unpacked"):
        list(kept_answers(path))
    deflated(whole)
    monkeypatch.setattr(kept_module, "LONGEST_BODY_BYTES", 8)
    with pytest.raises(VerificationError, match="cannot be unpacked"):
        list(kept_answers(path))
