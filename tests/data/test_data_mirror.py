"""A directory can stand in for the publishers: the same bytes, checked in the same way, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_site import FILES, OBJECT, REVISION, TABLE, WHOLE, Site

from assay import data
from assay.data.fetch import fetch
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.paths import ROOT
from hub_standin import sha256


def lay_out(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files below the folder."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


@pytest.mark.parametrize(
    "place",
    [
        "tiny",
        "org/tiny",
        f"datasets--org--tiny/snapshots/{REVISION}",
        f"hub/datasets--org--tiny/snapshots/{REVISION}",
    ],
)
def test_files_are_taken_from_each_documented_layout(tiny: Site, tmp_path: Path, place: str) -> None:
    lay_out(tmp_path / place, FILES)
    found = fetch(["tiny"], tmp_path)
    assert found == [data.verify("tiny")]
    assert tiny.left() == WHOLE


def test_the_links_of_a_hub_cache_are_followed_and_files_are_made(tiny: Site, tmp_path: Path) -> None:
    snapshot = tmp_path / f"datasets--org--tiny/snapshots/{REVISION}"
    lay_out(tmp_path / "datasets--org--tiny/blobs", {sha256(item): item for item in FILES.values()})
    for path, content in FILES.items():
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(tmp_path / "datasets--org--tiny/blobs" / sha256(content))
    fetch(["tiny"], tmp_path)
    assert not (tiny.snapshot / TABLE).is_symlink()
    data.verify("tiny")


@pytest.mark.parametrize("place", ["needles", "gcs/needles", "some_bucket"])
def test_objects_of_a_bucket_are_taken_by_dataset_or_bucket(site: Site, tmp_path: Path, place: str) -> None:
    site.lock(OBJECT % sha256(b"abc"))
    lay_out(tmp_path / place, {"a (1,2).csv": b"abc"})
    fetch(["needles"], tmp_path)
    assert (data.verify("needles").path / "a (1,2).csv").read_bytes() == b"abc"
    assert data.verify("needles").hub is None


def test_the_data_of_another_checkout_are_a_mirror(tiny: Site, tmp_path: Path) -> None:
    fetch_from = tmp_path / "data"
    lay_out(tmp_path / "first/tiny", FILES)
    fetch(["tiny"], tmp_path / "first")
    tiny.data.rename(fetch_from)
    fetch(["tiny"], fetch_from)
    assert tiny.left() == WHOLE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"!" + FILES[TABLE][1:], "datasets.lock says"),
        (FILES[TABLE] + b"!", "more than the pinned"),
        (FILES[TABLE][:-1], "datasets.lock says"),
    ],
    ids=["wrong byte", "longer", "shorter"],
)
def test_a_copy_that_differs_is_refused_by_its_path_and_not_kept(
    tiny: Site, tmp_path: Path, content: bytes, said: str
) -> None:
    lay_out(tmp_path / "tiny", {**FILES, TABLE: content})
    with pytest.raises(VerificationError) as caught:
        fetch(["tiny"], tmp_path)
    assert said in caught.value.why
    assert str(tmp_path / "tiny" / TABLE) in str(caught.value)
    assert tiny.left() == {f"hub/datasets--org--tiny/snapshots/{REVISION}/README.md"}
    with pytest.raises(PrerequisiteError):
        data.verify("tiny")


def test_a_copy_that_is_missing_is_told_with_every_place(tiny: Site, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        fetch(["tiny"], tmp_path)
    for place in ("tiny", "org/tiny", f"datasets--org--tiny/snapshots/{REVISION}"):
        assert str(tmp_path / place / "README.md") in caught.value.why


def test_a_mirror_that_is_no_directory_is_bad_configuration(tiny: Site, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no directory"):
        fetch(["tiny"], tmp_path / "nowhere")
    assert not tiny.data.exists()


def test_only_what_is_missing_is_taken(tiny: Site, tmp_path: Path) -> None:
    tiny.fill()
    (tiny.snapshot / "README.md").unlink()
    lay_out(tmp_path / "tiny", {"README.md": FILES["README.md"]})
    before = (tiny.snapshot / TABLE).stat()
    fetch(["tiny"], tmp_path)
    after = (tiny.snapshot / TABLE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert ROOT in tiny.data.parents
