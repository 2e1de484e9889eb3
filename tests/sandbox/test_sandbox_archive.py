"""Equal content gives an equal layer and an equal image, whatever dates and owners' names it had."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from assay.sandbox.archive import (
    Image,
    Layer,
    layer_from_directory,
    layer_from_export,
    make_image,
    write_archive,
)

EPOCH = 1_000_000_000


def tree(root: Path, date: int) -> Path:
    root.mkdir()
    (root / "etc").mkdir()
    (root / "etc" / "hostname").write_text(f"machine-{date}\n")
    (root / "etc" / "passwd").write_text("root:x:0:0\n")
    (root / "proc").mkdir()
    (root / "proc" / "1").write_text(str(date))
    os.link(root / "etc" / "passwd", root / "etc" / "group")
    (root / "link").symlink_to("etc/passwd")
    for path in root.rglob("*"):
        os.utime(path, (date, date), follow_symlinks=False)
    return root


def exported(target: Path, date: int, order: list[str]) -> Path:
    """A tar as an engine exports it: any order, its own dates, a link to the first of a file's names."""
    with tarfile.open(target, "w") as tar:
        for name in order:
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.uname = date, f"user{date}"
            if name == order[0]:
                entry.size = 5
                tar.addfile(entry, io.BytesIO(b"bytes"))
            else:
                entry.type, entry.linkname = tarfile.LNKTYPE, order[0]
                tar.addfile(entry)
    return target


def test_the_layer_of_a_directory_depends_on_content_alone(tmp_path: Path) -> None:
    layers = [
        layer_from_directory(tree(tmp_path / f"root{date}", date), tmp_path / f"{date}.tar", EPOCH)
        for date in (EPOCH + 1, EPOCH + 99_999)
    ]

    assert layers[0].diff_id == layers[1].diff_id
    with tarfile.open(layers[0].path) as tar:
        assert tar.getnames() == ["etc", "etc/group", "etc/passwd", "link", "proc"]
        assert all(entry.mtime == EPOCH and not entry.uname for entry in tar)


def test_one_changed_byte_gives_another_layer(tmp_path: Path) -> None:
    first = layer_from_directory(tree(tmp_path / "a", EPOCH), tmp_path / "a.tar", EPOCH)
    changed = tree(tmp_path / "b", EPOCH)
    (changed / "etc" / "passwd").write_text("root:x:0:1\n")

    assert layer_from_directory(changed, tmp_path / "b.tar", EPOCH).diff_id != first.diff_id


def test_the_layer_of_an_export_keeps_every_name_of_a_file_in_any_order(tmp_path: Path) -> None:
    layers = [
        layer_from_export(
            exported(tmp_path / f"export{index}.tar", EPOCH + index, order), tmp_path / f"{index}.tar", EPOCH
        )
        for index, order in enumerate((["b", "a", "c"], ["c", "b", "a"], ["a", "c", "b"]))
    ]

    assert len({layer.diff_id for layer in layers}) == 1
    with tarfile.open(layers[0].path) as tar:
        for name in "abc":
            content = tar.extractfile(name)
            assert content is not None
            assert content.read() == b"bytes"


def test_an_early_date_is_kept_and_a_late_one_cut_off(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", EPOCH + 5)
    os.utime(root / "link", (7, 7), follow_symlinks=False)

    layer = layer_from_directory(root, tmp_path / "layer.tar", EPOCH)

    with tarfile.open(layer.path) as tar:
        assert {entry.name: entry.mtime for entry in tar} == {
            "etc": EPOCH,
            "etc/group": EPOCH,
            "etc/passwd": EPOCH,
            "link": 7,
            "proc": EPOCH,
        }


def test_the_archive_holds_both_images_over_one_layer(tmp_path: Path) -> None:
    path = tmp_path / "layer.tar"
    path.write_bytes(b"layer")
    layer = Layer(path, f"sha256:{'a' * 64}")
    images = tuple(make_image(layer, (tag,), {"User": tag}, EPOCH, "amd64") for tag in ("one:1", "two:1"))
    write_archive(tmp_path / "archive.tar", layer, images)

    with tarfile.open(tmp_path / "archive.tar") as tar:
        manifest = json.loads(read(tar, "manifest.json"))
        assert [entry["RepoTags"] for entry in manifest] == [["one:1"], ["two:1"]]
        for entry, image in zip(manifest, images, strict=True):
            config = read(tar, entry["Config"])
            assert config == image.config
            assert json.loads(config)["rootfs"]["diff_ids"] == [layer.diff_id]
            assert entry["Config"] == f"{image.config_digest.removeprefix('sha256:')}.json"
            assert read(tar, entry["Layers"][0]) == b"layer"


@pytest.mark.parametrize("changed", [{"User": "other"}, {"Env": ["A=1"]}])
def test_an_images_identity_covers_its_settings(changed: dict[str, object]) -> None:
    layer = Layer(Path("unused"), f"sha256:{'a' * 64}")

    def digest(settings: dict[str, object]) -> str:
        made: Image = make_image(layer, ("t:1",), settings, EPOCH, "amd64")
        return made.config_digest

    assert digest({"User": "sandbox"}) == digest({"User": "sandbox"})
    assert digest({"User": "sandbox", **changed}) != digest({"User": "sandbox"})


def read(tar: tarfile.TarFile, name: str) -> bytes:
    content = tar.extractfile(name)
    assert content is not None
    return content.read()
