"""One layer with fixed dates, and the archive that Docker loads it from: equal content, equal image.

A plain `docker build` gives a new image id each time, since it writes dates into layers and configuration.
Here members are sorted, dates are cut off at an epoch, owners are numbers, and the configuration is canonical
JSON with a fixed creation date; so an image's id depends on nothing but what is in it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.digest import canonical_json, sha256_bytes, sha256_file

INJECTED = frozenset({".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab"})
"""Paths that the engine or debootstrap puts there, different on each machine."""
EMPTIED = ("dev/", "proc/", "sys/", "tmp/uv-")
XATTR = "SCHILY.xattr."


@dataclass(frozen=True)
class Layer:
    """A layer's tar file.

    Attributes:
        path: The file.
        diff_id: "sha256:" and the digest of its bytes.
    """

    path: Path
    diff_id: str


@dataclass(frozen=True)
class Image:
    """An image of one layer, ready to be written.

    Attributes:
        tags: Names it is loaded under.
        config: Its configuration, as canonical JSON.
    """

    tags: tuple[str, ...]
    config: bytes

    @property
    def config_digest(self) -> str:
        """The configuration's digest with "sha256:" before it, which classic engines call the image's id."""
        return f"sha256:{sha256_bytes(self.config)}"


def make_image(
    layer: Layer, tags: tuple[str, ...], settings: Mapping[str, Any], epoch: int, architecture: str
) -> Image:
    """An image of that layer.

    Args:
        layer: Its only layer.
        tags: Names to load it under.
        settings: Env, User, WorkingDir, Cmd, Labels, as Docker spells them.
        epoch: Its creation date, seconds since 1970.
        architecture: Docker's name of the processor's, such as "amd64".
    """
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": dict(settings),
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": created, "created_by": "assay sandbox"}],
    }
    return Image(tags, canonical_json(config))


def layer_from_export(export: Path, target: Path, epoch: int) -> Layer:
    """Rewrite the tar that an engine exports of a container as a layer with fixed dates."""
    with tarfile.open(export) as source, target.open("wb") as file:
        chosen = {entry.name.removeprefix("./"): entry for entry in source if kept(entry.name)}
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as layer:
            for entry, content in regrouped(source, chosen):
                layer.addfile(plain(entry, epoch), content)
    return Layer(target, f"sha256:{sha256_file(target)}")


def layer_from_directory(root: Path, target: Path, epoch: int) -> Layer:
    """A layer of everything below a directory, with fixed dates."""
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as layer:
        for name in filter(kept, paths):
            entry = layer.gettarinfo(root / name, arcname=name)
            if entry is None:  # a socket
                continue
            if entry.isreg():
                with (root / name).open("rb") as content:
                    layer.addfile(plain(entry, epoch), content)
            else:
                layer.addfile(plain(entry, epoch))
    return Layer(target, f"sha256:{sha256_file(target)}")


def write_archive(target: Path, layer: Layer, images: tuple[Image, ...]) -> None:
    """Write the archive that `docker load` reads: images that share one layer."""
    name = f"{layer.diff_id.removeprefix('sha256:')}/layer.tar"
    manifest = [
        {"Config": f"{sha256_bytes(image.config)}.json", "RepoTags": list(image.tags), "Layers": [name]}
        for image in images
    ]
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for image in images:
            add_bytes(archive, f"{sha256_bytes(image.config)}.json", image.config)
        add_bytes(archive, "manifest.json", canonical_json(manifest))
        entry = tarfile.TarInfo(name)
        entry.size = layer.path.stat().st_size
        with layer.path.open("rb") as content:
            archive.addfile(entry, content)


def add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file of that name and content, dated 1970."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def kept(name: str) -> bool:
    """Whether a path belongs into a layer."""
    bare = name.removeprefix("./")
    return bare not in ("", ".") and bare not in INJECTED and not bare.startswith(EMPTIED)


def plain(entry: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    """The entry without what differs from build to build: late dates, owners' names, other metadata."""
    entry.name = entry.name.removeprefix("./")
    entry.mtime = min(int(entry.mtime), epoch)
    entry.uname = entry.gname = ""
    entry.pax_headers = {
        key: value for key, value in sorted(entry.pax_headers.items()) if key.startswith(XATTR)
    }
    return entry


def regrouped(
    source: tarfile.TarFile, chosen: Mapping[str, tarfile.TarInfo]
) -> Iterator[tuple[tarfile.TarInfo, Any]]:
    """Entries by name; of files with several names the first holds the bytes, the others link to it."""
    holder: dict[str, str] = {}
    for name in sorted(chosen):
        entry = chosen[name]
        if not (entry.isreg() or entry.islnk()):
            yield entry, None
            continue
        origin = entry.linkname.removeprefix("./") if entry.islnk() else name
        first = holder.setdefault(origin, name)
        if first != name:
            link = chosen[name].replace(deep=True)
            link.type, link.linkname, link.size = tarfile.LNKTYPE, first, 0
            yield link, None
        else:
            whole = chosen[origin].replace(name=name, deep=True)
            yield whole, source.extractfile(chosen[origin])
