"""The manifest: whatever differs from it by one byte, one name or one link is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import VerificationError
from assay.record.manifest import compare, load_manifest, run_digests, write_manifest

NAME = st.text("abc.-é", min_size=1, max_size=6).filter(lambda name: name not in {".", ".."})
TREE = st.dictionaries(
    st.lists(NAME, min_size=1, max_size=3).map(tuple), st.binary(max_size=64), min_size=1, max_size=6
)
FEW = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(root: Path, tree: dict[tuple[str, ...], bytes]) -> list[Path]:
    """Write the files whose paths do not collide with an earlier folder or file."""
    written = []
    for parts, data in tree.items():
        path = root.joinpath(*parts)
        if any(parent.is_file() for parent in path.parents) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written.append(path)
    return written


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    (path / "entry/logs/attempt_1").mkdir(parents=True)
    (path / "entry/logs/latest").symlink_to("attempt_1")
    (path / "entry/traces.jsonl").write_text("{}\n")
    write_manifest(path)
    return path


@FEW
@given(TREE, st.data())
def test_any_changed_added_removed_or_renamed_file_is_found(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[tuple[str, ...], bytes], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("run")
    paths = write(root, tree)
    write_manifest(root)
    assert compare(root) == []
    path = data.draw(st.sampled_from(paths))
    relative = path.relative_to(root).as_posix()
    content = path.read_bytes()
    kind = data.draw(st.sampled_from(["change", "append", "remove", "rename", "add", "link"]))
    named = {relative}
    if kind == "change" and content:
        position = data.draw(st.integers(0, len(content) - 1))
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
    elif kind == "remove":
        path.unlink()
    elif kind == "rename":
        path.rename(path.with_name(path.name + "~"))
        named.add(relative + "~")
    elif kind == "add":
        path.with_name(path.name + "~").write_bytes(content)
        named = {relative + "~"}
    elif kind == "link":
        path.rename(path.with_name(path.name + "~"))
        path.symlink_to(path.name + "~")
        named.add(relative + "~")
    else:
        path.write_bytes(content + b"\0")
    assert {difference.path for difference in compare(root)} == named


def test_a_manifest_names_everything_but_itself_the_statement_and_the_report(run: Path) -> None:
    for name in ("statement.dsse.json", "report.html"):
        (run / name).write_text("x")
        (run / "entry" / name).write_text("x")
    write_manifest(run)
    assert set(load_manifest(run)) == {
        "entry/logs/latest", "entry/report.html", "entry/statement.dsse.json", "entry/traces.jsonl"
    }  # fmt: skip
    assert load_manifest(run)["entry/logs/latest"] == "link:attempt_1"


@pytest.mark.parametrize("target", ["/etc/hostname", "../traces.jsonl", "..", ".", "a/b", "../../../../x"])
def test_a_link_that_leads_out_of_its_folder_is_refused(run: Path, target: str) -> None:
    (run / "entry/logs/other").symlink_to(target)
    with pytest.raises(VerificationError, match="entry/logs/other is a link to"):
        run_digests(run)
    with pytest.raises(VerificationError):
        write_manifest(run)
    (difference,) = compare(run)
    assert "entry/logs/other is a link to" in difference.what


def test_a_link_that_points_elsewhere_now_is_found(run: Path) -> None:
    (run / "entry/logs/latest").unlink()
    (run / "entry/logs/latest").symlink_to("attempt_2")
    (difference,) = compare(run)
    assert (difference.path, difference.what) == (
        "entry/logs/latest", "is link:attempt_2, recorded link:attempt_1"
    )  # fmt: skip


def test_a_manifest_that_is_a_link_or_missing_is_refused(run: Path) -> None:
    (run / "manifest.json").rename(run.parent / "manifest.json")
    with pytest.raises(VerificationError, match="has no manifest"):
        compare(run)
    (run / "manifest.json").symlink_to(run.parent / "manifest.json")
    with pytest.raises(VerificationError, match="not a regular file"):
        compare(run)


def test_equal_trees_have_equal_manifests(tmp_path: Path) -> None:
    texts = []
    for order in (("b", "a/c", "a-b"), ("a-b", "a/c", "b")):
        root = tmp_path / order[0]
        for name in order:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        write_manifest(root)
        texts.append((root / "manifest.json").read_bytes())
    assert texts[0] == texts[1]
    assert list(json.loads(texts[0])["files"]) == ["a-b", "a/c", "b"]
