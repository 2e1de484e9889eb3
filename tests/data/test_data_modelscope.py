"""Task data of ModelScope: refused by name while nobody has pinned them, pinned once, had by digest then."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from data_site import Site

from assay import data
from assay.data import modelscope as through_modelscope
from assay.data import patience
from assay.data.fetch import fetch
from assay.data.write import write_pins
from assay.errors import AssayError, ConfigurationError, PrerequisiteError, VerificationError
from assay.paths import ROOT
from hub_standin import lock_entry, sha256
from modelscope_standin import ModelScopeStandIn
from served_bytes import Fault

REVISION, NEWER = "7c" * 20, "7d" * 20
TABLE = "data/test-00000-of-00001.parquet"
FILES = {
    "README.md": b"---\nlicense: mit\n---\n",
    TABLE: bytes(range(256)) * 1024,
    'odd "name" \u00e9.jsonl': b'{"problem": "1+1", "answer": "2"}\n',
}
SETTINGS = {".gitattributes": b"*.parquet filter=lfs\n", "dataset_infos.json": b"{}", "sub/empty.txt": b""}
WAITING = """\
# A comment that stays.

[[unpinned]]
name = "questions"
source = "modelscope"
repository = "org/questions"

[[unpinned]]
name = "essays"
source = "modelscope"
repository = "org/essays"
files = ["one.txt"]
"""


@pytest.fixture
def waiting(site: Site, modelscope: ModelScopeStandIn, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Two datasets that nobody has pinned yet, one of them published."""
    site.lock(WAITING)
    modelscope.add("org/questions", REVISION, {**FILES, **SETTINGS})
    modelscope.add("org/essays", REVISION, {"one.txt": b"1" * 300_000, "two.txt": b"2"})
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", modelscope.url)
    return site


@pytest.fixture
def pinned(waiting: Site) -> Site:
    """Pinned, and nothing of it here any more."""
    write_pins(["questions", "essays"])
    for path in sorted(waiting.data.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    waiting.data.rmdir()
    return waiting


def lock(site: Site) -> str:
    return (site.pins / "datasets.lock").read_text("utf-8")


def test_what_is_not_pinned_is_refused_by_its_name_wherever_it_is_needed(
    waiting: Site, modelscope: ModelScopeStandIn
) -> None:
    refused: list[Callable[[], object]] = [
        lambda: fetch(["questions"]),
        lambda: data.verify("questions"),
        lambda: data.find("questions"),
        lambda: data.frozen_names("questions"),
    ]
    for ask in refused:
        with pytest.raises(PrerequisiteError, match="task data questions are not pinned yet") as caught:
            ask()
        assert "questions --write-pins" in caught.value.next
    assert fetch(["all"]) == []
    with pytest.raises(ConfigurationError, match=r'did you mean "questions"\?'):
        fetch(["question"])
    assert modelscope.requests == []
    done = waiting.run()
    assert done.returncode == 2
    assert "not pinned yet: questions, essays" in done.stderr
    assert waiting.run("--check", "questions").returncode == 3


def test_the_newest_commit_is_pinned_by_digest_and_nothing_else_of_the_lock_changes(
    waiting: Site, modelscope: ModelScopeStandIn
) -> None:
    modelscope.add("org/questions", NEWER, {**FILES, **SETTINGS})
    done = waiting.run("questions", "--write-pins", "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout.splitlines()[-1])["datasets"]
    assert told["files"] == {path: sha256(content) for path, content in FILES.items()}
    text = lock(waiting)
    assert text.startswith("# A comment that stays.\n\n[[dataset]]\n")
    assert text.partition("[[unpinned]]")[2] == WAITING.rpartition("[[unpinned]]")[2]
    (entry,) = tomllib.loads(text)["dataset"]
    assert (entry["revision"], entry["size_bytes"]) == (NEWER, sum(map(len, FILES.values())))
    assert {file["path"]: file["sha256"] for file in entry["files"]} == told["files"]
    before = len(modelscope.requests)
    assert fetch(["questions"]) == [data.verify("questions")]
    assert len(modelscope.requests) == before, "it is here already"
    folder = data.find("questions").path
    assert {path: (folder / path).read_bytes() for path in FILES} == FILES
    assert set(waiting.left()) == {f"modelscope/datasets--org--questions/{NEWER}/{path}" for path in FILES}


def test_of_some_files_alone_only_those_are_pinned(waiting: Site, modelscope: ModelScopeStandIn) -> None:
    (found,) = write_pins(["essays"])
    assert set(found.files) == {"one.txt"}
    waiting.lock(WAITING.replace('"one.txt"', '"one.txt", "three.txt"'))
    with pytest.raises(PrerequisiteError, match=r"lacks what is wanted of it; three\.txt"):
        write_pins(["essays"])


def test_digests_that_are_not_told_are_those_of_the_bytes(
    waiting: Site, modelscope: ModelScopeStandIn
) -> None:
    modelscope.tells_digests = False
    (found,) = write_pins(["questions"])
    assert found.files == {path: sha256(content) for path, content in FILES.items()}


def test_many_files_are_listed_page_by_page(
    waiting: Site, modelscope: ModelScopeStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(through_modelscope, "PAGE", 3)
    many = {f"{number}.jsonl": b"%d" % number for number in range(9)}
    modelscope.add("org/questions", NEWER, many)
    modelscope.fail("tree", Fault(status=503), Fault(status=429, headers={"Retry-After": "0"}))
    (found,) = write_pins(["questions"])
    assert found.files == {path: sha256(content) for path, content in many.items()}


def test_a_digest_that_is_told_and_is_not_that_of_the_bytes_pins_nothing(
    waiting: Site, modelscope: ModelScopeStandIn
) -> None:
    modelscope.fail("README.md", Fault(body=b"X" * len(FILES["README.md"])))
    with pytest.raises(VerificationError, match="is not the pinned file"):
        write_pins(["questions"])
    assert lock(waiting) == WAITING
    write_pins(["questions"])


@pytest.mark.parametrize(
    ("names", "said", "code"),
    [
        (["pinned"], "are pinned already", 2),
        (["esays"], 'did you mean "essays"?', 2),
        (["absent"], "names no branch master", 3),
        (["questions", "--check"], "cannot be combined", 2),
        (["questions", "--mirror", "."], "cannot be combined", 2),
    ],
)
def test_what_cannot_be_pinned_is_refused(waiting: Site, names: list[str], said: str, code: int) -> None:
    # What is pinned was pinned by hand; nothing of it, and nothing of org/absent, is published.
    by_hand = lock_entry("pinned", "org/pinned", REVISION, FILES).replace('"hub"', '"modelscope"')
    absent = '[[unpinned]]\nname = "absent"\nsource = "modelscope"\nrepository = "org/absent"\n'
    waiting.lock(by_hand, WAITING, absent)
    before = lock(waiting)
    done = waiting.run(*names, "--write-pins")
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert lock(waiting) == before


def test_pinned_files_come_at_their_commit_and_a_broken_download_goes_on(
    pinned: Site, modelscope: ModelScopeStandIn
) -> None:
    modelscope.add("org/questions", NEWER, {"README.md": b"changed since"})
    modelscope.requests.clear()
    modelscope.storage_requests.clear()
    modelscope.fail(TABLE, Fault(cut_at=100_000))
    (found,) = fetch(["questions"])
    assert found.revision == REVISION
    assert found == data.verify("questions")
    assert all(REVISION in request.path for request in modelscope.requests)
    assert [request.headers.get("range") for request in modelscope.storage_requests] == [
        None,
        "bytes=100000-",
    ]


def test_a_host_that_takes_no_notice_of_a_range_begins_anew(
    pinned: Site, modelscope: ModelScopeStandIn
) -> None:
    modelscope.fail("README.md", Fault(cut_at=5), Fault(status=500))
    (found,) = fetch(["questions"])
    assert (found.path / "README.md").read_bytes() == FILES["README.md"]


FAULTS: dict[str, tuple[Fault, type[AssayError], str]] = {
    "another part": (Fault(part=7), VerificationError, "another part came"),
    "another size": (Fault(body=b"x" * 1000), VerificationError, "has 1000 bytes, but datasets.lock says"),
    "other bytes": (Fault(body=b"x" * 262_144), VerificationError, "is not the pinned file"),
    "forbidden": (Fault(status=403), PrerequisiteError, "it may not be read"),
    "gone": (Fault(status=404), PrerequisiteError, "it is not there (any more)"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_not_the_pinned_file_is_not_kept(
    pinned: Site, modelscope: ModelScopeStandIn, what: str
) -> None:
    fault, kind, said = FAULTS[what]
    modelscope.fail(TABLE, fault)
    with pytest.raises(kind) as caught:
        fetch(["questions"])
    assert said in str(caught.value)
    assert "signature" not in str(caught.value)
    assert not any(path.endswith(TABLE) for path in pinned.left())
    fetch(["questions"])


def test_a_host_that_stays_broken_is_given_up(pinned: Site, modelscope: ModelScopeStandIn) -> None:
    modelscope.fail(TABLE, *[Fault(status=503)] * (patience.FAILURES + 1))
    with pytest.raises(PrerequisiteError, match="asks for patience"):
        fetch(["questions"])


@pytest.mark.parametrize("elsewhere", ["http://example.org", "ftp://127.0.0.1", "http://u:p@127.0.0.1:9"])
def test_only_hosts_that_may_be_asked_are_followed_to(
    pinned: Site, modelscope: ModelScopeStandIn, elsewhere: str
) -> None:
    modelscope.elsewhere = elsewhere
    with pytest.raises(PrerequisiteError, match="by way of") as caught:
        fetch(["questions"])
    assert "secret" not in str(caught.value)
    assert "u:p" not in str(caught.value)


def test_a_host_that_sends_round_in_circles_is_left(pinned: Site, modelscope: ModelScopeStandIn) -> None:
    address = f"{modelscope.url}/api/v1/datasets/org/questions/repo?FilePath={TABLE}&Revision={REVISION}&x="
    modelscope.elsewhere = address
    with pytest.raises(PrerequisiteError, match="round in circles"):
        fetch(["questions"])


@pytest.mark.parametrize("layout", ["{name}", "{repository}", "datasets/{repository}", "{folder}"])
def test_a_copy_serves_in_the_layouts_that_its_own_tools_leave(
    pinned: Site, modelscope: ModelScopeStandIn, tmp_path: Path, layout: str
) -> None:
    modelscope.requests.clear()
    folder = tmp_path / layout.format(
        name="questions",
        repository="org/questions",
        folder=f"modelscope/datasets--org--questions/{REVISION}",
    )
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    assert fetch(["questions"], tmp_path) == [data.verify("questions")]
    assert modelscope.requests == []


def test_a_listing_that_cannot_be_read_pins_nothing(waiting: Site, modelscope: ModelScopeStandIn) -> None:
    for body in (b"<html>", b"[]", b'{"Data": {"Files": 3}}', b'{"Data": [1]}'):
        modelscope.fail("tree", Fault(status=200, body=body))
        with pytest.raises(PrerequisiteError, match="cannot be read"):
            write_pins(["questions"])
    hostile = {"Path": "../../up", "Type": "blob", "Size": 3, "Sha256": sha256(b"abc")}
    modelscope.fail("tree", Fault(status=200, body=json.dumps({"Data": [hostile]}).encode()))
    with pytest.raises(PrerequisiteError, match="cannot be pinned"):
        write_pins(["questions"])
    assert lock(waiting) == WAITING


WANTED = {
    "evalscope-aime24": "evalscope/aime24",
    "evalscope-aime25": "evalscope/aime25",
    "evalscope-aime26": "evalscope/aime26",
    "evalscope-gpqa-diamond": "AI-ModelScope/gpqa_diamond",
    "evalscope-ifbench": "allenai/IFBench_test",
    "evalscope-erqa": "evalscope/ERQA",
    "evalscope-realworldqa": "lmms-lab/RealWorldQA",
    "evalscope-needle-corpus": "AI-ModelScope/Needle-in-a-Haystack-Corpus",
}


def test_what_evalscope_reads_is_pinned_or_listed_as_unpinned_and_nothing_is_claimed() -> None:
    """By the ids that EvalScope 1.10.0 itself has; whichever is pinned by now has digests."""
    path = ROOT / "datasets.lock"
    known, waiting = data.datasets(path), data.unpinned(path)
    for name, repository in WANTED.items():
        listed = waiting.get(name) or known[name]
        assert listed.source == "modelscope"
        assert listed.repository == repository
    assert os.environ.get("MODELSCOPE_ENDPOINT") is None
