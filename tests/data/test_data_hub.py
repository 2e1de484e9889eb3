"""Task data come from the hub at their pinned commit, by digest, and nothing else is asked or kept."""

from __future__ import annotations

import email.utils
import errno
import os
import time
from pathlib import Path

import pytest
from data_site import FILES, REVISION, TABLE, WHOLE, Site

from assay import data
from assay.data import patience
from assay.data.fetch import fetch
from assay.data.partial import Partial
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from hub_standin import HubStandIn, git_sha1, sha256
from served_bytes import Fault

OTHER = "0c" * 20
README = f"hub/datasets--org--tiny/snapshots/{REVISION}/README.md"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of this process, none of which is waited for."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.fixture
def published(tiny: Site, hub: HubStandIn, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> Site:
    """The dataset is on the hub, in a commit that is not the last, beside a file that no taskset reads."""
    from assay.data import hub as through_hub

    # What a cut body brought of a piece is lost.
    monkeypatch.setattr(through_hub, "PIECE_BYTES", 10_000)
    hub.add("org/tiny", REVISION, {**FILES, "images/large.bin": b"not pinned"})
    hub.add("org/tiny", OTHER, {"README.md": b"changed since"})
    os.environ["HF_ENDPOINT"] = hub.url
    return tiny


def ranges(hub: HubStandIn) -> list[str | None]:
    """The range of each request for large bytes."""
    return [request.headers.get("range") for request in hub.cdn_requests]


def test_the_pinned_commit_is_fetched_and_then_found(published: Site, hub: HubStandIn) -> None:
    found = fetch(["tiny"])
    assert found == [data.verify("tiny")]
    assert published.left() == WHOLE
    for path, content in FILES.items():
        assert (published.snapshot / path).read_bytes() == content
    assert (published.home / "refs/main").read_bytes() == REVISION.encode()
    asked = len(hub.requests)
    assert fetch(["tiny"]) == found
    assert len(hub.requests) == asked


def test_only_pinned_files_of_the_pinned_commit_are_asked_for(published: Site, hub: HubStandIn) -> None:
    fetch(["tiny"])
    assert all(REVISION in request.path for request in hub.requests)
    assert {request.path.partition("?")[0].rpartition(REVISION)[2] for request in hub.requests} == {
        "/README.md",
        f"/{TABLE}",
    }
    assert len(hub.cdn_requests) == 1


def test_a_cut_body_is_continued_where_it_broke_off(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(cut_at=100_000), at="cdn")
    fetch(["tiny"])
    assert ranges(hub) == [None, "bytes=100000-"]
    data.verify("tiny")


def test_what_an_earlier_command_left_is_continued(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, *[Fault(status=500)] * (patience.FAILURES + 1), at="cdn")
    part = published.data / "partial" / f"sha256-{sha256(FILES[TABLE])}"
    with pytest.raises(PrerequisiteError, match="the hub is broken"):
        fetch(["tiny"])
    assert published.left() == {README}
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(FILES[TABLE][:70_000])
    del hub.cdn_requests[:]
    fetch(["tiny"])
    assert ranges(hub) == ["bytes=70000-"]
    assert published.left() == WHOLE


def test_a_host_that_ignores_the_range_is_begun_again(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(cut_at=100_000), Fault(whole=True), at="cdn")
    fetch(["tiny"])
    assert (published.snapshot / TABLE).read_bytes() == FILES[TABLE]


def test_a_part_that_begins_elsewhere_is_never_taken_for_the_rest(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(cut_at=100_000), Fault(part=99_999), at="cdn")
    with pytest.raises(VerificationError, match="is not the pinned file"):
        fetch(["tiny"])
    assert published.left() == {README}


def test_a_body_that_ends_early_without_saying_so_is_continued(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(ends_at=60_000), at="cdn")
    fetch(["tiny"])
    assert ranges(hub) == [None, "bytes=60000-"]


def test_a_body_that_is_too_long_is_stopped_at_the_pinned_size(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(body=FILES[TABLE] * 2), at="cdn")
    with pytest.raises(VerificationError, match="more than the pinned"):
        fetch(["tiny"])
    assert published.left() == {README}


@pytest.mark.parametrize("path", list(FILES))
def test_bytes_that_differ_from_what_was_promised_are_not_kept(
    published: Site, hub: HubStandIn, path: str
) -> None:
    wrong = FILES[path][:-1] + b"?"
    hub.fail(path, Fault(body=wrong), at="cdn")
    with pytest.raises(VerificationError) as caught:
        fetch(["tiny"])
    assert (sha256(wrong) if path == TABLE else git_sha1(wrong)) in caught.value.why
    assert not any(part.startswith("partial") for part in published.left())
    assert fetch(["tiny"]) == [data.verify("tiny")]


@pytest.mark.parametrize("path", list(FILES))
def test_a_changed_file_is_refused_before_a_byte_of_it_comes(
    published: Site, hub: HubStandIn, path: str
) -> None:
    hub.add("org/tiny", REVISION, {**FILES, path: FILES[path][:-1] + b"?"})
    with pytest.raises(VerificationError) as caught:
        fetch(["tiny"])
    assert "is not what datasets.lock pins" in caught.value.what
    assert "none of it was fetched" in caught.value.why
    assert len([item for item in published.left() if path in item]) == 0
    assert hub.cdn_requests == []


def test_a_file_of_another_size_is_refused_before_a_byte_of_it_comes(
    published: Site, hub: HubStandIn
) -> None:
    hub.add("org/tiny", REVISION, {**FILES, TABLE: FILES[TABLE] + b"?"})
    with pytest.raises(VerificationError, match="the hub says 262145 bytes, not 262144"):
        fetch(["tiny"])
    assert hub.cdn_requests == []


def test_another_commit_under_the_pinned_name_is_refused(published: Site, hub: HubStandIn) -> None:
    hub.fail("README.md", Fault(headers={"X-Repo-Commit": OTHER}), at="cdn-head")
    with pytest.raises(VerificationError, match=f"serves commit {OTHER}, not {REVISION}"):
        fetch(["tiny"])
    assert published.left() == set()


@pytest.mark.parametrize(
    ("at", "header", "seconds"),
    [
        ("head", {"Retry-After": "100"}, 100.0),
        ("head", {"RateLimit": '"resolvers";r=0;t=99'}, 100.0),
        ("cdn", {"Retry-After": "100"}, 101.0),
    ],
)
def test_a_hub_that_asks_for_patience_is_left_alone_for_that_time(
    published: Site,
    hub: HubStandIn,
    slept: list[float],
    capfd: pytest.CaptureFixture[str],
    at: str,
    header: dict[str, str],
    seconds: float,
) -> None:
    hub.fail(TABLE, Fault(status=429, headers=header), at=at)
    fetch(["tiny"])
    assert slept == [seconds]
    assert f"{seconds} s" in capfd.readouterr().err.replace(f"Waiting {seconds}s", f"{seconds} s")


def test_the_hubs_own_rate_limit_header_is_understood() -> None:
    assert patience.retry_after_s({"RateLimit": '"resolvers";r=0;t=55'}) == 56.0
    assert patience.retry_after_s({"RateLimit": '"resolvers";r=4;t=55'}) is None
    assert patience.retry_after_s({"Retry-After": "7", "RateLimit": '"resolvers";r=0;t=55'}) == 7.0
    in_a_minute = email.utils.formatdate(time.time() + 60, usegmt=True)
    waited = patience.retry_after_s({"Retry-After": in_a_minute})
    assert waited is not None
    assert 50 < waited <= 60
    assert patience.retry_after_s({"Retry-After": email.utils.formatdate(0, usegmt=True)}) == 0.0
    for unusable in ("soon", "-1", "²", "Mon, 01 Jan 0001 00:00:00 -0000"):
        assert patience.retry_after_s({"Retry-After": unusable}) in (None, 0.0)
    assert patience.retry_after_s({}) is None


def test_a_hub_that_asks_for_an_hour_ends_the_command(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(status=429, headers={"Retry-After": "3600"}), at="head")
    with pytest.raises(PrerequisiteError, match="asks for patience"):
        fetch(["tiny"])
    assert len([path for path in hub.asked("HEAD") if TABLE in path]) == 1


def test_a_gated_repository_is_told_with_what_opens_it(published: Site, hub: HubStandIn) -> None:
    hub.add("org/tiny", REVISION, FILES, gated=True)
    hub.known.add("hf_somebody")
    for token in ("", "hf_somebody"):
        os.environ["HF_TOKEN"] = token
        with pytest.raises(PrerequisiteError) as caught:
            fetch(["tiny"])
        assert caught.value.what == "org/tiny is gated"
        assert "set HF_TOKEN" in caught.value.next


@pytest.mark.parametrize("where", ["variable", "file", "file named by a variable"])
def test_the_users_token_opens_it_and_never_leaves_for_another_host(
    published: Site, hub: HubStandIn, tmp_path: Path, where: str
) -> None:
    hub.add("org/tiny", REVISION, FILES, gated=True)
    hub.tokens.add("hf_mine")
    if where == "variable":
        os.environ["HF_TOKEN"] = "hf_mine"
    else:
        (tmp_path / "token").write_text("hf_mine\n")
        os.environ.pop("HF_HOME")
        os.environ["HF_HOME" if where == "file" else "HF_TOKEN_PATH"] = str(
            tmp_path if where == "file" else tmp_path / "token"
        )
    done = published.run("tiny", "--json", "--verbose")
    assert done.returncode == 0, done.stderr
    assert all(request.headers["authorization"] == "Bearer hf_mine" for request in hub.requests)
    assert not any("authorization" in request.headers for request in hub.cdn_requests)
    assert "hf_mine" not in done.stdout + done.stderr
    assert "X-Signature" not in done.stdout + done.stderr
    kept = [path for path in published.data.rglob("*") if path.is_file()]
    assert not any(b"hf_mine" in path.read_bytes() for path in kept)
    # The library finds the token where the user keeps it, and nothing else is made there.
    assert {path.name for path in tmp_path.rglob("*")} <= {"token"}


def test_a_token_that_the_hub_does_not_take_is_told(published: Site) -> None:
    os.environ["HF_TOKEN"] = "hf_expired"
    with pytest.raises(PrerequisiteError) as caught:
        fetch(["tiny"])
    assert caught.value.what == "the hub does not take this token"
    assert "hf_expired" not in str(caught.value)


@pytest.mark.parametrize("token", ["hf_sec\x01ret", "hf_séc", "hf_sec ret"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    published: Site, hub: HubStandIn, token: str
) -> None:
    os.environ["HF_TOKEN"] = token
    with pytest.raises(ConfigurationError, match="is not one") as caught:
        fetch(["tiny"])
    assert "hf_s" not in str(caught.value)
    assert hub.requests == []


def test_a_repository_a_commit_or_a_file_that_is_gone_is_told(tiny: Site, hub: HubStandIn) -> None:
    os.environ["HF_ENDPOINT"] = hub.url
    with pytest.raises(PrerequisiteError, match="shows no repository org/tiny"):
        fetch(["tiny"])
    hub.add("org/tiny", OTHER, FILES)
    with pytest.raises(PrerequisiteError, match=f"has no commit {REVISION}"):
        fetch(["tiny"])
    hub.add("org/tiny", REVISION, {"README.md": FILES["README.md"]})
    with pytest.raises(PrerequisiteError, match=f"has no {TABLE}") as caught:
        fetch(["tiny"])
    assert caught.value.next == "take it from a copy: --mirror DIR"


def test_a_hub_that_is_down_is_a_missing_prerequisite(tiny: Site, hub: HubStandIn) -> None:
    with HubStandIn() as gone:
        os.environ["HF_ENDPOINT"] = gone.url
    with pytest.raises(PrerequisiteError, match="does not answer"):
        fetch(["tiny"])
    assert tiny.left() == set()


def test_a_disk_that_cannot_be_written_is_no_reason_to_ask_the_hub_again(
    published: Site, hub: HubStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Partial, data: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Partial, "write", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fetch(["tiny"])
    assert len(hub.asked("GET")) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://hub.example",
        "http://10.0.0.1:8000",
        "http://127.0.0.1.example",
        "ftp://localhost",
        "https://user:secret@hub.example",
        "hub.example",
        "http://[::1",
        "http://127.0.0.1:99999",
        "https://hub.example:port",
    ],
)
@pytest.mark.parametrize("variable", ["HF_ENDPOINT", "ASSAY_BUCKET_ENDPOINT"])
def test_an_address_that_anybody_could_answer_is_refused(site: Site, variable: str, url: str) -> None:
    from assay.data.address import endpoint

    os.environ[variable] = url
    with pytest.raises(ConfigurationError) as caught:
        endpoint(variable, "https://default.example")
    assert f"unset {variable}" in caught.value.next
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://hub.example/sub", "http://localhost:1", "http://127.8.0.1", "http://[::1]:5/"]
)
def test_tls_and_this_machine_are_allowed(site: Site, url: str) -> None:
    from assay.data.address import endpoint

    os.environ["HF_ENDPOINT"] = url
    assert endpoint("HF_ENDPOINT", "https://default.example") == url.rstrip("/")


def test_a_redirect_to_an_open_address_is_refused(published: Site, hub: HubStandIn) -> None:
    hub.fail(TABLE, Fault(headers={"Location": "http://cdn.example/blob?X-Signature=secret"}), at="head")
    with pytest.raises(PrerequisiteError) as caught:
        fetch(["tiny"])
    assert "by way of http://cdn.example/blob" in caught.value.what
    assert "secret" not in str(caught.value)


def test_offline_switches_and_the_users_caches_are_neither_read_nor_written(
    published: Site, hub: HubStandIn, tmp_path: Path
) -> None:
    caches = tmp_path / "hub"
    trap = caches / f"datasets--org--tiny/snapshots/{REVISION}/README.md"
    trap.parent.mkdir(parents=True)
    trap.write_bytes(b"the user's own copy, changed")
    before = sorted(tmp_path.rglob("*"))
    done = published.run(
        "tiny",
        HF_HOME=str(tmp_path),
        HF_HUB_CACHE=str(caches),
        HF_XET_CACHE=str(tmp_path / "xet"),
        HOME=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path / "xdg"),
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        HF_DEBUG="1",
    )
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    assert (published.snapshot / "README.md").read_bytes() == FILES["README.md"]
    assert published.left() == WHOLE
    assert not any("telemetry" in path or "agent" in path for path in hub.asked("GET") + hub.asked("HEAD"))


def test_xet_is_not_used_even_where_the_hub_offers_it(published: Site, hub: HubStandIn) -> None:
    offer = {"X-Xet-Hash": sha256(FILES[TABLE]), "Link": f'<{hub.url}/xet-auth>; rel="xet-auth"'}
    hub.fail(TABLE, Fault(headers=offer), at="head")
    assert fetch(["tiny"]) == [data.verify("tiny")]
    assert len(hub.cdn_requests) == 1
