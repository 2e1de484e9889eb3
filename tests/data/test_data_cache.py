"""The cache is verified before each use, holds nothing that is not pinned, and is never repaired."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from data_site import FILES, REVISION, TABLE, Site

from assay import data
from assay.data import store
from assay.data.fetch import fetch
from assay.errors import AssayError, ConfigurationError, PrerequisiteError, VerificationError
from assay.paths import ROOT
from hub_standin import HubStandIn


@pytest.fixture
def filled(tiny: Site) -> Site:
    """A cache that holds the dataset whole."""
    tiny.fill()
    return tiny


def test_what_is_whole_is_verified_and_named_by_sha256(filled: Site) -> None:
    found = data.verify("tiny")
    assert found.path == filled.snapshot
    assert found.hub == filled.data / "hub"
    assert found.revision == REVISION
    assert found.size_bytes == sum(map(len, FILES.values()))
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}
    assert found.files == digests
    assert data.frozen("tiny") == {f"data:tiny/{path}": digest for path, digest in digests.items()}
    assert data.frozen_names("tiny") == list(data.frozen("tiny"))


def test_data_are_found_by_names_and_sizes_and_only_verifying_reads_them(filled: Site) -> None:
    path = filled.snapshot / "README.md"
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))

    found = data.find("tiny")

    assert (found.path, found.hub, found.revision) == (filled.snapshot, filled.data / "hub", REVISION)
    with pytest.raises(VerificationError, match="is not the pinned file"):
        data.verify("tiny")
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(VerificationError, match=r"bytes, but datasets\.lock says"):
        data.find("tiny")
    path.unlink()
    with pytest.raises(PrerequisiteError, match=r"1 of \d files are missing"):
        data.find("tiny")


def test_the_digest_of_a_snapshot_changes_with_any_byte_of_it(filled: Site) -> None:
    before = data.verify("tiny").digest
    changed = {**FILES, "README.md": FILES["README.md"] + b"\n"}
    filled.tiny(**changed)
    (filled.snapshot / "README.md").write_bytes(changed["README.md"])
    assert data.verify("tiny").digest != before


def state() -> dict[Path, tuple[int, int]]:
    """Which file stands at each path, and when it was last written; but the lock, which every turn writes."""
    files = [path for path in store.own().directory.rglob("*") if path.name != store.LOCK]
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in files if not path.is_dir()}


def refused(kind: type[AssayError]) -> AssayError:
    """The error that verifying and fetching both end in, neither having changed anything."""
    before = state()
    with pytest.raises(kind) as verifying:
        data.verify("tiny")
    with pytest.raises(kind) as fetching:
        fetch(["tiny"])
    assert str(verifying.value) == str(fetching.value)
    assert state() == before
    return verifying.value


def removed_by_hand(error: AssayError) -> None:
    """Type the command that the error names."""
    command = error.next.partition(", then ")[0]
    assert command.startswith("rm ")
    subprocess.run(shlex.split(command), cwd=ROOT, check=True)


def test_a_wrong_byte_is_never_replaced_and_the_command_removes_it(filled: Site, hub: HubStandIn) -> None:
    os.environ["HF_ENDPOINT"] = hub.url
    hub.add("org/tiny", REVISION, FILES)
    wrong = b"!" + FILES[TABLE][1:]
    (filled.snapshot / TABLE).write_bytes(wrong)
    error = refused(VerificationError)
    assert hashlib.sha256(wrong).hexdigest() in error.why
    assert hashlib.sha256(FILES[TABLE]).hexdigest() in error.why
    assert error.next.endswith(f", then eval/scripts/data --pins {filled.pins.relative_to(ROOT)} tiny")
    assert (filled.snapshot / TABLE).read_bytes() == wrong
    assert hub.requests == []
    removed_by_hand(error)
    assert fetch(["tiny"])[0].files[TABLE] == hashlib.sha256(FILES[TABLE]).hexdigest()


def test_a_wrong_byte_in_a_file_named_by_gits_hash_is_found(filled: Site) -> None:
    (filled.snapshot / "README.md").write_bytes(FILES["README.md"].replace(b"mit", b"MIT"))
    assert "git-sha1" in refused(VerificationError).why


def test_a_file_of_another_size_is_told_by_both_sizes(filled: Site) -> None:
    with (filled.snapshot / TABLE).open("ab") as file:
        file.write(b"x")
    error = refused(VerificationError)
    assert f"has {len(FILES[TABLE]) + 1} bytes, but datasets.lock says {len(FILES[TABLE])}" in error.what


@pytest.mark.parametrize(
    "place",
    [
        f"snapshots/{REVISION}/data/validation.parquet",
        f"snapshots/{REVISION}/.hidden",
        f"snapshots/{REVISION}/data/train/more.parquet",
        f"snapshots/{'0' * 40}/README.md",
        "refs/convert/parquet",
        "blobs/0123",
        ".no_exist/x",
    ],
)
def test_a_file_that_is_not_in_the_lock_is_refused(filled: Site, place: str) -> None:
    path = filled.home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"unpinned")
    error = refused(VerificationError)
    assert "is not in datasets.lock" in error.what
    removed_by_hand(error)
    data.verify("tiny")


def test_a_link_where_a_file_belongs_is_refused(filled: Site, tmp_path: Path) -> None:
    (filled.snapshot / TABLE).rename(tmp_path / "equal")
    (filled.snapshot / TABLE).symlink_to(tmp_path / "equal")
    error = refused(VerificationError)
    assert "neither a file nor a directory" in error.what
    removed_by_hand(error)
    assert (tmp_path / "equal").read_bytes() == FILES[TABLE]


def test_a_link_where_a_folder_belongs_is_refused(filled: Site, tmp_path: Path) -> None:
    (filled.snapshot / "data").rename(tmp_path / "data")
    (filled.snapshot / "data").symlink_to(tmp_path / "data")
    removed_by_hand(refused(VerificationError))
    assert (tmp_path / "data" / Path(TABLE).name).read_bytes() == FILES[TABLE]


@pytest.mark.parametrize("place", ["", "hub", "hub/datasets--org--tiny"])
def test_a_link_where_the_cache_belongs_is_refused(filled: Site, tmp_path: Path, place: str) -> None:
    folder = filled.data / place
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    for action in (lambda: data.verify("tiny"), lambda: fetch(["tiny"])):
        with pytest.raises(ConfigurationError, match="symbolic link where a directory belongs"):
            action()


def test_main_bound_to_another_commit_is_refused(filled: Site) -> None:
    for other in ("0" * 40, REVISION + "\n", ""):
        (filled.home / "refs/main").write_text(other)
        assert "binds main to" in refused(VerificationError).what
    removed_by_hand(refused(VerificationError))
    fetch(["tiny"])
    assert (filled.home / "refs/main").read_bytes() == REVISION.encode()


def test_a_directory_without_our_mark_is_refused(tiny: Site) -> None:
    tiny.data.mkdir(parents=True)
    (tiny.data / "somebody's").write_bytes(b"data")
    error = refused(ConfigurationError)
    assert "is not Assay's cache" in error.what
    assert tiny.left() == {"somebody's"}


@pytest.mark.parametrize("mark", ['{"owner": "assay data", "pins": "production"}', "{}", "not JSON"])
def test_a_mark_of_other_pins_or_of_nobody_is_refused(filled: Site, mark: str) -> None:
    (filled.data / store.MARK).write_text(mark)
    refused(ConfigurationError)


def test_a_link_in_place_of_the_mark_is_refused(filled: Site, tmp_path: Path) -> None:
    (filled.data / store.MARK).rename(tmp_path / "mark")
    (filled.data / store.MARK).symlink_to(tmp_path / "mark")
    refused(ConfigurationError)


def test_what_is_no_file_in_place_of_the_lock_is_refused_and_not_followed(
    filled: Site, tmp_path: Path
) -> None:
    lock = filled.data / store.LOCK
    for make in (lambda: lock.symlink_to(tmp_path / "elsewhere"), lock.mkdir, lambda: os.mkfifo(lock)):
        lock.unlink()
        make()
        ended = filled.run("tiny")
        assert (ended.returncode, f"mv {lock.relative_to(ROOT)} " in ended.stderr) == (2, True), ended.stderr
        lock.rmdir() if lock.is_dir() else lock.unlink()
        lock.touch()
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_never_fetched_names_the_command(tiny: Site) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        data.verify("tiny")
    assert caught.value.next == f"eval/scripts/data --pins {tiny.pins.relative_to(ROOT)} tiny"
    assert not tiny.data.exists()


def test_what_is_not_whole_is_a_missing_prerequisite(filled: Site) -> None:
    (filled.snapshot / TABLE).unlink()
    with pytest.raises(PrerequisiteError, match=r"1 of \d files are missing"):
        data.verify("tiny")
    (filled.snapshot / TABLE).write_bytes(FILES[TABLE])
    (filled.home / "refs/main").unlink()
    with pytest.raises(PrerequisiteError, match="main is not bound"):
        data.verify("tiny")


def test_an_unknown_name_is_bad_configuration(tiny: Site) -> None:
    for action in (data.verify, data.frozen, data.frozen_names):
        with pytest.raises(ConfigurationError, match='did you mean "tiny"'):
            action("tinny")


def test_the_hubs_own_library_reads_the_cache_offline_without_a_revision(
    filled: Site, tmp_path: Path
) -> None:
    script = (
        "import json, huggingface_hub as h\n"
        f"one = h.hf_hub_download('org/tiny', {TABLE!r}, repo_type='dataset')\n"
        "print(json.dumps([one, h.snapshot_download('org/tiny', repo_type='dataset')]))\n"
    )
    environment = {"HF_HUB_CACHE": str(filled.data / "hub"), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [str(filled.snapshot / TABLE), str(filled.snapshot)]
    data.verify("tiny")


def test_a_second_process_waits_and_is_told_whose_turn_it_is(filled: Site) -> None:
    with store.own().opened():
        child = filled.start("tiny")
        assert child.stderr is not None
        said = child.stderr.readline()
        assert said == f"assay: waiting for another download into this cache (process {os.getpid()}) ...\n"
        assert child.poll() is None
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert out.startswith("tiny: ")
