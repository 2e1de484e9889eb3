"""Objects of a bucket come at their pinned generation, and a broken download goes on only with that one."""

from __future__ import annotations

import errno
import io
import os
from urllib.parse import quote

import pytest
from data_site import Site

from assay import data
from assay.data import partial, patience
from assay.data.fetch import fetch
from assay.errors import PrerequisiteError, RunError, VerificationError
from bucket_standin import BucketStandIn
from hub_standin import sha256
from served_bytes import Fault

NAME = "needles_in_(32768,65536)_fast.csv"
DATA = b"".join(b"%06d,needle\n" % number for number in range(20_000))
GENERATION = 1752099150466835
PINNED = f'size_bytes = {len(DATA)}, sha256 = "{sha256(DATA)}"'
LOCK = f"""\
[[dataset]]
name = "needles"
source = "bucket"
bucket = "some_bucket"
size_bytes = {len(DATA)}
files = [
    {{ part = "32k", path = "{NAME}", generation = "{GENERATION}", {PINNED} }},
]
"""
PARTIAL = f"partial/sha256-{sha256(DATA)}"


@pytest.fixture
def published(site: Site, bucket: BucketStandIn) -> Site:
    """The object is in its bucket, and was written over since."""
    site.lock(LOCK)
    bucket.put("some_bucket", NAME, GENERATION, DATA)
    bucket.put("some_bucket", NAME, GENERATION + 1, DATA[::-1])
    os.environ["ASSAY_BUCKET_ENDPOINT"] = bucket.url
    return site


def leave(site: Site, part: bytes) -> None:
    """What an interrupted download has left."""
    with pytest.raises(PrerequisiteError):
        fetch(["needles"], site.pins)  # a mirror that holds nothing: the cache is made
    (site.data / "partial").mkdir(exist_ok=True)
    (site.data / PARTIAL).write_bytes(part)


def ranges(bucket: BucketStandIn) -> list[str | None]:
    """The range of each request."""
    return [request.headers.get("range") for request in bucket.requests]


def test_the_pinned_generation_is_fetched_and_then_found(published: Site, bucket: BucketStandIn) -> None:
    found = fetch(["needles"])
    assert found == [data.verify("needles")]
    assert found[0].revision == str(GENERATION)
    assert (found[0].path / NAME).read_bytes() == DATA
    assert published.left() == {f"gcs/needles/{NAME}"}
    wanted = f"/some_bucket/{quote(NAME, safe='')}?generation={GENERATION}"
    assert [request.path for request in bucket.requests] == [wanted]
    fetch(["needles"])
    assert len(bucket.requests) == 1


def test_a_cut_body_is_continued_where_it_broke_off(published: Site, bucket: BucketStandIn) -> None:
    bucket.fail(NAME, Fault(cut_at=100_000), Fault(cut_at=150_000))
    fetch(["needles"])
    first, second, third = ranges(bucket)
    assert first is None
    assert second == "bytes=100000-"
    assert third == "bytes=150000-"


def test_a_body_that_ends_early_without_saying_so_is_refused(published: Site, bucket: BucketStandIn) -> None:
    bucket.fail(NAME, Fault(ends_at=60_000))
    with pytest.raises(VerificationError, match=f"has 60000 bytes, but datasets.lock says {len(DATA)}"):
        fetch(["needles"])


def test_what_an_earlier_command_left_is_continued(published: Site, bucket: BucketStandIn) -> None:
    leave(published, DATA[:12_345])
    fetch(["needles"])
    assert ranges(bucket) == ["bytes=12345-"]
    assert published.left() == {f"gcs/needles/{NAME}"}


def test_what_is_left_whole_needs_no_request(published: Site, bucket: BucketStandIn) -> None:
    leave(published, DATA)
    fetch(["needles"])
    assert bucket.requests == []


def test_what_was_left_with_wrong_bytes_is_found_at_the_end_and_dropped(
    published: Site, bucket: BucketStandIn
) -> None:
    leave(published, b"\0" * 12_345)
    with pytest.raises(VerificationError, match="nothing of it was kept"):
        fetch(["needles"])
    assert published.left() == set()
    fetch(["needles"])
    assert ranges(bucket) == ["bytes=12345-", None]


def test_what_was_left_too_long_is_begun_again(published: Site, bucket: BucketStandIn) -> None:
    leave(published, DATA + b"!")
    fetch(["needles"])
    assert ranges(bucket) == [None]


def test_a_link_where_the_part_belongs_is_refused(published: Site, bucket: BucketStandIn) -> None:
    leave(published, b"")
    (published.data / PARTIAL).unlink()
    (published.data / PARTIAL).symlink_to(published.pins / "datasets.lock")
    with pytest.raises(VerificationError, match="is no regular file"):
        fetch(["needles"])
    assert (published.pins / "datasets.lock").read_text() == LOCK


def test_a_pipe_where_the_part_belongs_is_refused(published: Site, bucket: BucketStandIn) -> None:
    leave(published, b"")
    (published.data / PARTIAL).unlink()
    os.mkfifo(published.data / PARTIAL)
    with pytest.raises(VerificationError, match="is no regular file"):
        fetch(["needles"])


@pytest.mark.parametrize("left", [b"", DATA[:5000]], ids=["from the start", "amid"])
def test_another_generation_is_refused_before_a_byte_is_written(
    published: Site, bucket: BucketStandIn, left: bytes
) -> None:
    leave(published, left)
    bucket.fail(NAME, Fault(headers={"x-goog-generation": "17"}))
    with pytest.raises(
        VerificationError, match=f"came at generation 17, but datasets.lock pins {GENERATION}"
    ):
        fetch(["needles"])
    assert published.left() == ({PARTIAL} if left else set())


def test_a_host_that_ignores_the_range_is_begun_again(published: Site, bucket: BucketStandIn) -> None:
    leave(published, DATA[:5000])
    bucket.fail(NAME, Fault(whole=True))
    assert fetch(["needles"]) == [data.verify("needles")]


def test_a_part_that_begins_elsewhere_is_refused_before_a_byte_is_written(
    published: Site, bucket: BucketStandIn
) -> None:
    leave(published, DATA[:5000])
    bucket.fail(NAME, Fault(part=4999))
    with pytest.raises(VerificationError, match="was to go on at byte 5000, but another part came"):
        fetch(["needles"])
    assert (published.data / PARTIAL).read_bytes() == DATA[:5000]


def test_an_object_of_another_size_is_refused_before_a_byte_is_written(
    published: Site, bucket: BucketStandIn
) -> None:
    bucket.fail(NAME, Fault(body=DATA + b"!"))
    with pytest.raises(VerificationError, match=f"has {len(DATA) + 1} bytes"):
        fetch(["needles"])
    assert published.left() == set()


def test_bytes_that_differ_are_not_kept(published: Site, bucket: BucketStandIn) -> None:
    bucket.fail(NAME, Fault(body=DATA[:-1] + b"?"))
    with pytest.raises(VerificationError, match="is not the pinned file"):
        fetch(["needles"])
    assert published.left() == set()


def test_what_a_tasksets_own_file_lock_leaves_is_passed_over_and_nothing_else(
    published: Site, bucket: BucketStandIn
) -> None:
    found = fetch(["needles"])[0]
    lock = found.path / f"{NAME}.lock"
    lock.touch()
    assert data.verify("needles") == found
    assert fetch(["needles"]) == [found]
    lock.write_bytes(b"x")
    with pytest.raises(VerificationError, match="is not in datasets"):
        data.verify("needles")
    lock.rename(lock.with_suffix(".csv"))
    lock.with_suffix(".csv").write_bytes(b"")
    with pytest.raises(VerificationError, match="is not in datasets"):
        data.verify("needles")


def test_a_generation_that_is_gone_is_told(published: Site, bucket: BucketStandIn) -> None:
    published.lock(LOCK.replace(str(GENERATION), "99"))
    with pytest.raises(PrerequisiteError) as caught:
        fetch(["needles"])
    assert "answered 404" in caught.value.why
    assert "--mirror" in caught.value.next


def test_a_redirect_is_not_followed(published: Site, bucket: BucketStandIn) -> None:
    bucket.fail(NAME, Fault(status=302, headers={"Location": "http://elsewhere.example/"}))
    with pytest.raises(PrerequisiteError, match="answered 302"):
        fetch(["needles"])


def test_a_busy_bucket_is_asked_again_and_a_broken_one_not_for_ever(
    published: Site, bucket: BucketStandIn
) -> None:
    bucket.fail(NAME, Fault(status=503), Fault(status=429, headers={"Retry-After": "0"}))
    fetch(["needles"])
    assert len(bucket.requests) == 3
    (published.data / "gcs/needles" / NAME).unlink()
    bucket.fail(NAME, *[Fault(status=503)] * 20)
    with pytest.raises(PrerequisiteError, match="asks for patience"):
        fetch(["needles"])
    assert len(bucket.requests) == 3 + patience.FAILURES + 1


def test_a_bucket_that_asks_for_an_hour_ends_the_command(published: Site, bucket: BucketStandIn) -> None:
    bucket.fail(NAME, Fault(status=429, headers={"Retry-After": "3600"}))
    with pytest.raises(PrerequisiteError):
        fetch(["needles"])
    assert len(bucket.requests) == 1


def test_a_host_that_is_down_is_a_missing_prerequisite(published: Site) -> None:
    with BucketStandIn() as gone:
        os.environ["ASSAY_BUCKET_ENDPOINT"] = gone.url
    with pytest.raises(PrerequisiteError, match="does not answer"):
        fetch(["needles"])


def test_a_full_disk_fails_and_what_has_come_is_continued(
    published: Site, bucket: BucketStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, data: bytes) -> int:
            room = 100_000 - self.tell()
            if room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data[:room])

    leave(published, b"")
    with monkeypatch.context() as full:
        full.setattr(partial.os, "fdopen", lambda handle, mode, buffering: Full(handle, mode))
        with pytest.raises(RunError, match="the disk is full"):
            fetch(["needles"])
    assert (published.data / PARTIAL).read_bytes() == DATA[:100_000]
    fetch(["needles"])
    assert ranges(bucket) == [None, "bytes=100000-"]
