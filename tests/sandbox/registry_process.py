"""An image registry on loopback for tests: Debian's own, with its data where a test can spoil them."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from docker import DockerClient

from assay import process
from assay.paths import ROOT

START_WITHIN_S = 30
CONFIGURATION = """
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "{address}"}}
"""
AUTHENTICATION = "auth: {{htpasswd: {{realm: test, path: {path}}}}}\n"


@dataclass(frozen=True)
class Registry:
    """A registry that answers.

    Attributes:
        address: Host and port.
        data: Its files.
    """

    address: str
    data: Path

    def blob(self, digest: str) -> Path:
        """Where the bytes of a manifest, a configuration or a layer lie."""
        value = digest.removeprefix("sha256:")
        return self.data / "docker/registry/v2/blobs/sha256" / value[:2] / value / "data"

    def push(self, client: DockerClient, image: str, name: str) -> str:
        """Push an image of the engine under a name; returns the digest of its manifest."""
        repository = f"{self.address}/{name}"
        client.images.get(image).tag(repository, "pushed")
        try:
            for event in client.api.push(repository, "pushed", stream=True, decode=True):
                assert "error" not in event, event
                if "aux" in event:
                    return str(event["aux"]["Digest"])
        finally:
            client.images.remove(f"{repository}:pushed")
        raise AssertionError("nothing was pushed")

    def manifest(self, digest: str) -> dict[str, Any]:
        """A manifest as JSON."""
        return cast("dict[str, Any]", json.loads(self.blob(digest).read_bytes()))


@contextmanager
def registry(folder: Path, asks_who: bool = False) -> Iterator[Registry]:
    """A registry over the data in a folder, for as long as the block lasts.

    Args:
        folder: Its own; a second one over the same folder has the same images.
        asks_who: Whether it gives nothing to whom it does not know.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    text = CONFIGURATION.format(data=folder / "data", address=address)
    if asks_who:
        (folder / "htpasswd").write_text("")
        text += AUTHENTICATION.format(path=folder / "htpasswd")
    configuration = folder / "registry.yml"
    configuration.write_text(text)
    with (folder / "registry.log").open("ab") as log:
        child = process.start(["docker-registry", "serve", configuration], env={}, cwd=ROOT, stdout=log)
        try:
            wait_for(child, address, folder / "registry.log")
            yield Registry(address, folder / "data")
        finally:
            process.end(child)


def wait_for(child: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Wait until the registry answers."""
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        assert child.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"http://{address}/v2/"):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(log.read_text())


def tiny_image(client: DockerClient, tag: str, content: bytes) -> str:
    """Load an image of one file into the engine; returns its id."""
    layer = archive({"hello": content})
    config = json.dumps(
        {
            "architecture": client.version()["Arch"],
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    client.images.load(archive({"config.json": config, "layer.tar": layer, "manifest.json": manifest}))
    return str(client.images.get(tag).id)


def archive(files: dict[str, bytes]) -> bytes:
    """A tar of files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()
