"""Files of GitHub that are wanted by name: pinned once by their bytes, then had by commit and digest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from data_site import Site

from assay import data
from assay.data import repository
from assay.data.fetch import fetch
from assay.data.write import write_pins
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.paths import ROOT
from hub_standin import sha256
from served_bytes import Fault, Request, Served, Speaker

REVISION, NEWER = "3a" * 20, "3b" * 20
FILES = {"packages/a b.zip": b"PK one", "packages/two.zip": bytes(range(256)) * 900}
WAITING = """\
[[unpinned]]
name = "words"
source = "github"
repository = "org/words"
branch = "pages"
files = ["packages/two.zip", "packages/a b.zip"]
"""


class GitHubStandIn:
    """The host: files of commits, by way of another path of its own, and the branch `pages` of its Git."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {REVISION: dict(FILES)}
        self.requests: list[Request] = []


@pytest.fixture
def github(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubStandIn]:
    """Published, and wanted by the lock."""
    host = GitHubStandIn()

    class Host(Speaker):
        def answer(self) -> None:
            host.requests.append(self.request_seen())
            path = unquote(self.path)
            if path.startswith("/org/words.git/info/refs"):
                self.send(
                    200,
                    f"{list(host.commits)[-1]}\trefs/heads/pages\n".encode(),
                    {"Content-Type": "text/plain"},
                )
                return
            if path.startswith("/org/words/raw/"):
                self.send(302, b"", {"Location": self.path.replace("/raw/", "/bytes/")})
                return
            commit, _, name = path.removeprefix("/org/words/bytes/").partition("/")
            found = host.commits.get(commit, {}).get(name)
            if found is None:
                self.send(404, b"not found")
            else:
                self.send_file(found, {}, Fault())

    with Served(Host) as served:
        monkeypatch.setenv("ASSAY_GITHUB_ENDPOINT", served.url)
        site.lock(WAITING)
        yield host


def test_what_is_named_is_pinned_by_its_bytes_and_had_at_its_commit(
    site: Site, github: GitHubStandIn
) -> None:
    done = site.run("words", "--write-pins", "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout.splitlines()[-1])["datasets"]
    assert told["files"] == {path: sha256(content) for path, content in FILES.items()}
    assert told["revision"] == REVISION
    folder = site.data / f"github/datasets--org--words/{REVISION}"
    assert {path: (folder / path).read_bytes() for path in FILES} == FILES
    github.commits[NEWER] = {path: content[::-1] for path, content in FILES.items()}
    (folder / "packages/two.zip").unlink()
    github.requests.clear()
    assert fetch(["words"]) == [data.verify("words")]
    assert [request.path for request in github.requests] == [
        f"/org/words/{what}/{REVISION}/packages/two.zip" for what in ("raw", "bytes")
    ]


def test_other_bytes_at_the_pinned_commit_are_refused(site: Site, github: GitHubStandIn) -> None:
    write_pins(["words"])
    path = site.data / f"github/datasets--org--words/{REVISION}/packages/a b.zip"
    path.unlink()
    github.commits[REVISION]["packages/a b.zip"] = b"PK 0ne"
    with pytest.raises(VerificationError, match="is not the pinned file"):
        fetch(["words"])
    assert not path.exists()


def test_a_file_that_is_not_there_pins_nothing(site: Site, github: GitHubStandIn) -> None:
    del github.commits[REVISION]["packages/two.zip"]
    with pytest.raises(PrerequisiteError, match="it is not there"):
        write_pins(["words"])
    assert (site.pins / "datasets.lock").read_text() == WAITING


def test_a_file_without_end_is_left(
    site: Site, github: GitHubStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "MAXIMUM_BYTES", 1000)
    with pytest.raises(PrerequisiteError, match="is larger than 1000 bytes"):
        write_pins(["words"])


def test_files_must_be_named_where_none_are_listed(site: Site) -> None:
    site.lock(WAITING.replace("files =", "# files ="))
    with pytest.raises(ConfigurationError, match="name the files that are wanted"):
        data.unpinned()


def test_what_ifbench_needs_of_nltk_is_wanted_by_name(site: Site) -> None:
    path = Path(ROOT / "datasets.lock")
    listed = data.unpinned(path).get("nltk-ifbench") or data.datasets(path)["nltk-ifbench"]
    assert (listed.source, listed.repository) == ("github", "nltk/nltk_data")
