r"""`events.jsonl`, secrets and stops: what is reported from anywhere, and what must never be written."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.coordinator.events import Events, read_events
from assay.coordinator.redact import REDACTED, Secrets
from assay.coordinator.stop import Stop
from assay.errors import RunError, VerificationError
from assay.run.key import Key

CANARY = 'canary/"key"\\+7d1f&é'


def opened(run: Path, *keys: str) -> tuple[Events, list[Exception]]:
    secrets = Secrets()
    for key in keys:
        secrets.add(Key(key))
    told: list[Exception] = []
    return Events(run, secrets, told.append), told


def test_events_are_numbered_on_over_resumes_and_a_torn_tail_is_cut_and_noted(tmp_path: Path) -> None:
    with opened(tmp_path)[0] as events:
        events("run-started", {"jobs": ["a\u0085b"]})
        events("job-started", {"job": "a"})
    path = tmp_path / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n":3,"kind":"to')
    with opened(tmp_path)[0] as events:
        events("run-resumed", {})
    rows = list(read_events(tmp_path))
    assert [row["n"] for row in rows] == [1, 2, 3, 4]
    assert [row["kind"] for row in rows] == ["run-started", "job-started", "tail-repaired", "run-resumed"]
    assert rows[0]["jobs"] == ["a\u0085b"]
    assert rows[2]["bytes_cut"] == 17
    assert path.read_bytes().startswith(whole)


def test_a_line_in_the_middle_that_is_no_event_is_told_to_readers_and_stops_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"n":1,"kind":"x"}\n\0\0\0\n')
    with opened(tmp_path)[0] as events:
        events("run-resumed", {})
    assert json.loads(path.read_bytes().splitlines()[-1])["n"] == 2
    with pytest.raises(VerificationError, match="cannot be read"):
        list(read_events(tmp_path))


def test_a_secret_is_in_no_event_in_whatever_spelling_it_came(tmp_path: Path) -> None:
    spellings = [
        CANARY,
        quote(CANARY, safe=""),
        json.dumps(CANARY),
        base64.b64encode(CANARY.encode()).decode(),
    ]
    with opened(tmp_path, CANARY)[0] as events:
        events("said", {"text": " ".join(spellings), "nested": [{CANARY: [CANARY]}]})
    data = (tmp_path / "events.jsonl").read_text("utf-8")
    row = json.loads(data)
    assert row["nested"] == [{REDACTED: [REDACTED]}]
    for spelling in spellings:
        assert spelling.strip('"=') not in data
        assert spelling.strip('"=') not in row["text"]


@given(st.text(min_size=4), st.text(), st.text())
def test_no_text_keeps_a_secret(key: str, before: str, after: str) -> None:
    secrets = Secrets()
    secrets.add(Key(key))
    if key in REDACTED + REDACTED:
        return
    assert key not in secrets.text(before + key + after).replace(REDACTED, "")


def test_one_secret_that_begins_another_hides_both() -> None:
    secrets = Secrets()
    for key in ("abcdef", "abcdefgh", "x"):
        secrets.add(Key(key))
    assert secrets.text("abcdefgh abcdef x") == f"{REDACTED} {REDACTED} x"
    assert secrets.data(b"1 abcdefgh") == b"1 ***"


def test_a_full_disk_is_told_once_and_raises_nowhere(tmp_path: Path) -> None:
    events, told = opened(tmp_path)
    with mock.patch("os.write", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
        events("one", {})
        events("two", {})
    events("three", {})
    events.close()
    assert [type(error) for error in told] == [RunError]
    assert "the disk is full" in str(told[0])
    assert [row["kind"] for row in read_events(tmp_path)] == ["three"]


def test_a_stop_reaches_what_is_below_it_and_keeps_its_first_reason() -> None:
    async def tell() -> None:
        run = Stop()
        one, two = Stop(run), Stop(run)
        one.ask("budget")
        assert (one.why, two.asked, run.asked) == ("budget", False, False)
        run.ask("cancelled")
        await two.wait()
        assert (one.why, two.why, one.urgent, two.urgent) == ("budget", "cancelled", False, False)
        run.ask("cancelled")
        await two.wait_urgent()
        assert one.urgent
        late = Stop(run)
        assert (late.why, late.urgent) == ("cancelled", True)

    asyncio.run(tell())
