"""NLTK's data serve packed as they are published, unpacked as NLTK leaves them, and mixed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from assay.backends import nltk_data
from assay.errors import VerificationError

PARTS = ("tokenizers/punkt_tab", "corpora/stopwords")


def packed(folder: Path, part: str, *names: str) -> None:
    """An archive as it is published: the part's own folder is in it."""
    path = nltk_data.archive(folder, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name in names or (f"{path.stem}/english.txt",):
            file.writestr(name, "words")


def test_archives_are_unpacked_beside_links_to_what_is_unpacked_already(tmp_path: Path) -> None:
    given, into = tmp_path / "given", tmp_path / "into"
    packed(given, PARTS[0])
    assert nltk_data.lacking(given, PARTS) == [PARTS[1]]
    (given / PARTS[1]).mkdir(parents=True)
    (given / PARTS[1] / "english.txt").write_text("words")
    assert nltk_data.lacking(given, PARTS) == []
    assert nltk_data.unpacked(given, PARTS, into) == into
    for part in PARTS:
        assert (into / part / "english.txt").read_text() == "words"
    assert not (given / PARTS[0]).exists(), "what was verified is left as it is"


def test_what_is_unpacked_wholly_is_used_where_it_is(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).mkdir(parents=True)
    assert nltk_data.unpacked(tmp_path, PARTS, tmp_path / "into") == tmp_path
    assert not (tmp_path / "into").exists()


def test_nothing_of_an_archive_lands_outside(tmp_path: Path) -> None:
    packed(tmp_path, PARTS[0], "../../../outside.txt", "/outside.txt", "punkt_tab/english.txt")
    (tmp_path / PARTS[1]).mkdir(parents=True)
    nltk_data.unpacked(tmp_path, PARTS, tmp_path / "deep/into")
    assert not (tmp_path / "outside.txt").exists()
    assert not Path("/outside.txt").exists()
    assert all(path.is_relative_to(tmp_path / "deep/into") for path in tmp_path.rglob("outside.txt"))


def test_an_archive_that_is_none_or_too_large_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, PARTS[0])
    monkeypatch.setattr(nltk_data, "MAXIMUM_BYTES", 3)
    with pytest.raises(VerificationError, match="would grow beyond 3 bytes"):
        nltk_data.unpacked(tmp_path, PARTS, tmp_path / "into")
    nltk_data.archive(tmp_path, PARTS[0]).write_bytes(b"no archive")
    with pytest.raises(VerificationError, match="cannot be unpacked"):
        nltk_data.unpacked(tmp_path, PARTS, tmp_path / "into")
