"""Digests: of files and trees by their bytes, of values by one canonical form."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.digest import (
    CHUNK_BYTES,
    SMALL_BYTES,
    canonical_json,
    combined_digest,
    sha256_bytes,
    sha256_file,
    sha256_files,
    tree_digests,
    value_digest,
)
from assay.errors import VerificationError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_canonical_json_is_read_back_as_the_value_and_is_its_own_canonical_form(value: object) -> None:
    data = canonical_json(value)
    again = json.loads(data)
    assert again == value
    assert canonical_json(again) == data
    assert b"\n" not in data


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: dict[str, object], random: Random) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)
    assert value_digest(dict(items)) == value_digest(value)


@given(VALUES, VALUES)
def test_values_that_differ_have_other_digests(first: object, second: object) -> None:
    if canonical_json(first) != canonical_json(second):
        assert value_digest(first) != value_digest(second)
    else:
        assert first == second


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, {"a": [math.nan]}, "\ud800"])
def test_what_has_no_canonical_form_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|surrogates not allowed"):
        canonical_json(bad)


def test_canonical_json_is_the_form_that_is_written_down() -> None:
    assert (
        canonical_json({"b": [1, 2.5, None, True], "a": "é\n"})
        == '{"a":"é\\n","b":[1,2.5,null,true]}'.encode()
    )
    assert sha256_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


SIZES = (0, 1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + SMALL_BYTES + 7)


@pytest.mark.parametrize("size", SIZES)
def test_a_files_digest_is_that_of_its_bytes_at_any_size(tmp_path: Path, size: int) -> None:
    data = bytes(index * 7 % 251 for index in range(size))
    path = tmp_path / "file"
    path.write_bytes(data)
    assert sha256_file(path) == hashlib.sha256(data).hexdigest()
    tool = subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True)
    assert sha256_file(path) == tool.stdout.split()[0]


@pytest.mark.parametrize("workers", [None, 1, 7])
def test_many_files_are_hashed_each_once_and_in_their_order(tmp_path: Path, workers: int | None) -> None:
    paths = []
    for number in range(600):
        path = tmp_path / f"{number * 37 % 600}"
        path.write_text(str(number))
        paths.append(path)
    digests = sha256_files([*paths, paths[0]], workers)
    assert list(digests) == paths
    assert all(digest == sha256_file(path) for path, digest in digests.items())
    assert sha256_files([]) == {}


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sha256_file(tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        sha256_files([tmp_path / "absent"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.dictionaries(st.sampled_from(["a", "b/c", "b/d", "e/f/g"]), st.binary(max_size=8), min_size=1))
def test_a_trees_digests_are_those_of_its_files_by_path(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name, data in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "__pycache__").mkdir()
    (root / "__pycache__/x.pyc").write_bytes(b"no source")
    found = tree_digests(root)
    assert found == {name: sha256_bytes(data) for name, data in sorted(tree.items())}
    assert combined_digest(found) == combined_digest(dict(reversed(list(found.items()))))


@pytest.mark.parametrize("kind", ["link", "folder link", "pipe"])
def test_a_tree_with_anything_but_files_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "odd"
    if kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to("/etc/hostname" if kind == "link" else "/etc")
    with pytest.raises(VerificationError, match="odd is neither a file nor a directory"):
        tree_digests(tmp_path)
