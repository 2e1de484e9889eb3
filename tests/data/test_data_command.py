"""`assay data`: sizes said and agreed to before a byte, progress, cancelling, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from data_site import FILES, OBJECT, REVISION, TABLE, WHOLE, Site

from assay.data import meter
from assay.data.fetch import fetch
from assay.paths import ROOT
from hub_standin import HubStandIn, lock_entry, sha256
from served_bytes import Fault

LARGE = lock_entry("large", "org/large", REVISION, FILES).replace(
    f"size_bytes = {len(FILES[TABLE])}", "size_bytes = 1500000000"
)
LARGE = LARGE.replace(f"size_bytes = {sum(map(len, FILES.values()))}", "size_bytes = 1500000028")
HUGE = LARGE.replace("1500000", "1500000000000")


@pytest.fixture
def published(tiny: Site, hub: HubStandIn) -> Site:
    """The dataset is on the hub."""
    hub.add("org/tiny", REVISION, FILES)
    hub.add("org/large", REVISION, FILES)
    tiny.environment["HF_ENDPOINT"] = hub.url
    return tiny


def until(condition: Callable[[], bool]) -> None:
    """Wait for the condition; fail after a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def on_terminal(
    site: Site, answer: bytes, *words: str, seen: tuple[bytes, threading.Event] | None = None
) -> tuple[int, str]:
    """Run the command on a terminal, type the answer when it asks; its exit code and what it showed.

    The event in `seen` is set once the bytes beside it were shown.
    """
    inner, outer = pty.openpty()
    child = subprocess.Popen(
        site.command(*words),
        env={**os.environ, **site.environment, "TERM": "xterm", "COLUMNS": "120"},
        stdin=outer,
        stdout=outer,
        stderr=outer,
    )
    os.close(outer)
    shown = b""
    while True:
        try:
            chunk = os.read(inner, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
        if seen is not None and seen[0] in shown:
            seen[1].set()
        if answer and b"[y/N]" in shown:
            os.write(inner, answer)
            answer = b""
    os.close(inner)
    return child.wait(60), shown.decode("utf-8", "replace")


def test_it_says_what_it_fetches_and_prints_what_is_here(published: Site) -> None:
    done = published.run("tiny", "--json")
    assert done.returncode == 0, done.stderr
    assert "assay: 262,172 bytes to fetch into .assay/pins/" in done.stderr
    assert f"assay: tiny/{TABLE}: 262,144 bytes, sha256 as pinned" in done.stderr
    line, answer = done.stdout.splitlines()
    assert line.startswith("tiny: .assay/pins/")
    assert "2 files, 262172 bytes, sha256" in line
    found = json.loads(answer)["datasets"][0]
    assert found["revision"] == REVISION
    assert found["files"][TABLE] == sha256(FILES[TABLE])
    assert found["sha256"] in line
    again = published.run("tiny")
    assert again.stdout.splitlines() == [line]
    assert "to fetch" not in again.stderr


def test_check_hashes_what_is_here_and_changes_nothing(tiny: Site) -> None:
    assert tiny.run("--check", "tiny").returncode == 3
    assert not tiny.data.exists()
    tiny.fill()
    done = tiny.run("tiny", "--check")
    assert done.returncode == 0, done.stderr
    (tiny.snapshot / TABLE).write_bytes(FILES[TABLE][::-1])
    done = tiny.run("tiny", "--check", "--json")
    assert done.returncode == 5
    assert json.loads(done.stdout.splitlines()[-1])["exit_code"] == 5
    assert (tiny.snapshot / TABLE).read_bytes() == FILES[TABLE][::-1]


def test_check_of_all_tells_every_error_and_ends_in_the_gravest(site: Site) -> None:
    entry = lock_entry("tiny", "org/tiny", REVISION, FILES)
    site.lock(entry, OBJECT % sha256(b"abc"), lock_entry("other", "org/other", REVISION, FILES))
    site.fill()
    (site.snapshot / "README.md").write_bytes(FILES["README.md"][::-1])
    done = site.run("--check", "all")
    assert done.returncode == 5
    assert "task data needles are not here" in done.stderr
    assert "task data other are not here" in done.stderr
    assert "README.md is not the pinned file" in done.stderr
    (site.snapshot / "README.md").write_bytes(FILES["README.md"])
    done = site.run("--check", "all")
    assert done.returncode == 3
    assert done.stdout.startswith("tiny: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tinny"], 'did you mean "tiny"?'),
        ([], "known: tiny (262,172 bytes), and all"),
        (["tiny", "--check", "--yes"], "cannot be combined"),
        (["tiny", "--check", "--mirror", "."], "cannot be combined"),
        (["tiny", "--mirror", "eval/no-such-folder"], "is no directory"),
        (["tiny", "--repair"], "unrecognized arguments"),
    ],
)
def test_bad_words_are_exit_2(tiny: Site, words: list[str], said: str) -> None:
    done = tiny.run(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not tiny.data.exists()


def test_an_unsafe_address_is_exit_2_before_any_request(published: Site, hub: HubStandIn) -> None:
    done = published.run("tiny", HF_ENDPOINT="http://hub.example")
    assert done.returncode == 2
    assert "next: unset HF_ENDPOINT" in done.stderr
    assert published.left() == set()
    assert hub.requests == []


def test_without_room_nothing_is_asked_for(published: Site, hub: HubStandIn) -> None:
    published.lock(HUGE)
    done = published.run("large", "--yes")
    assert done.returncode == 3
    assert "there is no room for 1500000.00 GB" in done.stderr
    assert hub.requests == []


def test_a_large_download_wants_yes_where_nobody_can_be_asked(published: Site, hub: HubStandIn) -> None:
    published.lock(LARGE)
    done = published.run("large")
    assert done.returncode == 3
    assert "assay: 1.50 GB to fetch into" in done.stderr
    assert f"next: eval/scripts/data --pins {published.pins.relative_to(ROOT)} large --yes" in done.stderr
    assert hub.requests == []
    done = published.run("large", "--yes")
    # It went on: the stand-in's file is not the one of that size.
    assert done.returncode == 5
    assert "the hub says 262144 bytes, not 1500000000" in done.stderr


def test_on_a_terminal_a_large_download_is_asked_for(published: Site, hub: HubStandIn) -> None:
    published.lock(LARGE)
    for answer in (b"\n", b"n\n"):
        code, shown = on_terminal(published, answer, "large")
        assert code == 6
        assert "fetch 1.50 GB? [y/N]" in shown
        assert "nothing was fetched" in shown
    assert hub.requests == []
    code, shown = on_terminal(published, b"y\n", "large")
    assert code == 5
    assert "is not what datasets.lock pins" in shown


def test_a_terminal_shows_a_bar_with_bytes_and_time_left(published: Site, hub: HubStandIn) -> None:
    hold = threading.Event()
    hub.fail(TABLE, Fault(cut_at=100_000, wait=hold), at="cdn")
    code, shown = on_terminal(published, b"", "tiny", seen=(b"/262.1 kB", hold))
    assert code == 0
    assert f"tiny/{TABLE}" in shown
    assert "/262.1 kB" in shown
    assert "left" in shown


def test_without_a_terminal_lines_tell_how_far_it_is(
    tiny: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(meter, "HEARTBEAT_S", 0.0)
    for path, content in FILES.items():
        (tmp_path / "tiny" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tiny" / path).write_bytes(content)
    fetch(["tiny"], tmp_path)
    lines = capfd.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith(f"assay: tiny/{TABLE}: 0.3 of 0.3 MB, 0 s, ")]
    assert len(told) == 1
    assert told[0].endswith(" MB/s, left 0 s")


def test_a_line_says_what_cannot_be_known_yet() -> None:
    lines = meter.Lines("x", 4_000_000, 1_000_000)
    assert lines.line(0.0) == "assay: x: 1.0 of 4.0 MB, 0 s, ?, left ?"
    lines.advance(1_000_000)
    assert lines.line(2.0) == "assay: x: 2.0 of 4.0 MB, 2 s, 0.5 MB/s, left 4 s"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_download_is_kept_and_continued(
    site: Site, bucket: object, number: signal.Signals
) -> None:
    from bucket_standin import BucketStandIn

    assert isinstance(bucket, BucketStandIn)
    content = os.urandom(400_000)
    name = "a (1,2).csv"
    site.lock((OBJECT % sha256(content)).replace("size_bytes = 3", f"size_bytes = {len(content)}"))
    bucket.put("some_bucket", name, 17, content)
    site.environment["ASSAY_BUCKET_ENDPOINT"] = bucket.url
    hold = threading.Event()
    bucket.fail(name, Fault(cut_at=200_000, wait=hold))
    part = site.data / "partial" / f"sha256-{sha256(content)}"
    child = site.start("needles")
    until(lambda: part.exists() and part.stat().st_size == 200_000)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    hold.set()
    assert child.returncode == 6
    assert "cancelled; what has come is kept" in err
    assert out == ""
    assert site.left() == {f"partial/{part.name}"}
    done = site.run("needles")
    assert done.returncode == 0, done.stderr
    assert "200,000 bytes more are here already" in done.stderr
    assert bucket.requests[-1].headers["range"] == "bytes=200000-"
    assert site.left() == {f"gcs/needles/{name}"}


def test_two_commands_at_once_fetch_it_once(published: Site, hub: HubStandIn) -> None:
    hold = threading.Event()
    hub.fail(TABLE, Fault(wait=hold), at="cdn")
    first = published.start("tiny")
    until(lambda: len(hub.cdn_requests) == 1)
    second = published.start("tiny")
    assert second.stderr is not None
    assert second.stderr.readline().endswith(f"(process {first.pid}) ...\n")
    hold.set()
    results = [child.communicate(timeout=60)[0] for child in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert results[0] == results[1]
    assert len(hub.cdn_requests) == 1
    assert published.left() == WHOLE


def test_the_script_is_the_verb(tiny: Site) -> None:
    done = subprocess.run(
        [ROOT / "eval/scripts/data", "tinny"],
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert 'did you mean "tiny"?' in done.stderr
