"""A base image from Debian packages, for machines that no image registry answers.

debootstrap checks the archive's signature and every package's digest against it. Debian keeps no old
versions in place, so the packages cannot be pinned; their versions and digests are recorded instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import ImageNotFound

from assay.digest import sha256_files
from assay.errors import PrerequisiteError
from assay.files import read_json, write_json_atomic
from assay.sandbox.archive import Layer, layer_from_directory, make_image, write_archive
from assay.sandbox.images import DebianBase
from assay.sandbox.load import load_images_from

REPOSITORY = "localhost/assay-base"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEFT_BEHIND = ("var/cache/apt", "var/lib/apt/lists", "var/log", "var/cache/debconf", "etc/machine-id", "tmp")


@dataclass(frozen=True)
class Base:
    """A base image, and what is known of where it came from.

    Attributes:
        image: What the Dockerfile builds on: an image id, or a reference with a digest.
        packages: For a base from Debian packages, each .deb's SHA-256 by its file name; else empty.
    """

    image: str
    packages: dict[str, str]


def debian_base(client: DockerClient, wanted: DebianBase, epoch: int, folder: Path) -> Base:
    """The base from Debian packages: the one made before, if it is still there, else a new one.

    Args:
        client: The engine that gets it.
        wanted: Suite and packages.
        epoch: The latest date in it.
        folder: Where it is made, and its record kept.

    Raises:
        PrerequisiteError: this user is not root, debootstrap is missing or fails.
    """
    record = folder / "debian-base.json"
    made_from = {"suite": wanted.suite, "include": list(wanted.include), "epoch": epoch}
    known = read_json(record) if record.is_file() else {}
    if known.get("made_from") == made_from and has_image(client, str(known.get("image"))):
        return Base(str(known["image"]), dict(known["packages"]))
    work = folder / "debian"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        root = work / "root"
        bootstrap(wanted, root, folder / "debootstrap.log")
        archives = sorted((root / "var/cache/apt/archives").glob("*.deb"))
        packages = {path.name: digest for path, digest in sha256_files(archives).items()}
        clean(root)
        layer = layer_from_directory(root, work / "layer.tar", epoch)
        image = load_base(client, layer, epoch, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    write_json_atomic(record, {"made_from": made_from, "image": image, "packages": packages})
    return Base(image, packages)


def bootstrap(wanted: DebianBase, root: Path, log: Path) -> None:
    """Run debootstrap into a directory; PrerequisiteError when it cannot or does not."""
    program = shutil.which("debootstrap", path=SYSTEM_PATH)
    if program is None:
        raise PrerequisiteError(
            "debootstrap is not installed, and no registry gave a base image",
            "the base is then made from Debian packages",
            "apt-get install --no-install-recommends debootstrap",
        )
    if os.geteuid() != 0:
        raise PrerequisiteError(
            "a base from Debian packages can only be made by root",
            "debootstrap must own files as root, and no registry gave a base image",
            "sudo eval/scripts/sandbox --base debian",
        )
    passed = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="assay-") as short, log.open("wb") as output:
        # debootstrap's own scripts break at a space in the path, which this checkout's may hold.
        alias = Path(short) / "root"
        alias.symlink_to(root)
        command = [program, "--variant=minbase", f"--include={','.join(wanted.include)}"]
        command += [wanted.suite, str(alias)]
        done = subprocess.run(
            command,
            env={**passed, "PATH": SYSTEM_PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        last = log.read_text("utf-8", errors="replace").strip().splitlines()[-1:]
        raise PrerequisiteError(
            f"debootstrap could not make {wanted.suite}",
            "".join(last),
            f"see {log}, then eval/scripts/sandbox",
        )


def clean(root: Path) -> None:
    """Remove what differs from run to run: downloads, logs, identities, the machine's own files."""
    for name in LEFT_BEHIND:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
            path.mkdir(mode=0o1777 if name == "tmp" else 0o755)
            path.chmod(0o1777 if name == "tmp" else 0o755)
        else:
            path.unlink(missing_ok=True)
    (root / "var/cache/ldconfig/aux-cache").unlink(missing_ok=True)


def load_base(client: DockerClient, layer: Layer, epoch: int, work: Path) -> str:
    """Load the layer as an image and return its id."""
    architecture = str(client.version()["Arch"])
    settings = {"Env": [f"PATH={SYSTEM_PATH}"], "Cmd": ["sh"]}
    tag = f"{REPOSITORY}:debian-{layer.diff_id.removeprefix('sha256:')[:12]}"
    image = make_image(layer, (tag,), settings, epoch, architecture)
    archive = work / "base.tar"
    write_archive(archive, layer, (image,))
    return load_images_from(client, archive, (image,))[0]


def has_image(client: DockerClient, image_id: str) -> bool:
    """Whether the engine has that image."""
    try:
        client.images.get(image_id)
    except ImageNotFound:
        return False
    return True
