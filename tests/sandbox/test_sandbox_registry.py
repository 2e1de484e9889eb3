"""A pinned image comes from a registry by digest, or not at all; a tag of another's is left alone."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound
from registry_process import Registry, registry, tiny_image
from test_sandbox_refusals import assay

from assay import sandbox
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.sandbox import helper_images
from assay.sandbox.engine import connect
from assay.sandbox.images import HelperPin
from assay.sandbox.recipe import load_recipe
from assay.sandbox.record import SANDBOX
from assay.sandbox.registry import VARIABLE, choose_registry, place

# By its name: the package has a function of the same one.
building = importlib.import_module("assay.sandbox.build")
DIGEST = f"sha256:{'0' * 64}"


@dataclass(frozen=True)
class Pinned:
    """A helper whose image lies in a registry and not in the engine, where its tag is free.

    Attributes:
        pin: What `images.lock` would say of it.
        registry: Where it lies.
        client: The engine.
    """

    pin: HelperPin
    registry: Registry
    client: DockerClient

    def settle(self, address: str | None = None) -> None:
        helper_images.settle_pinned(self.client, [self.pin], address or self.registry.address)

    @property
    def tagged(self) -> str | None:
        """What the engine has under the tag."""
        try:
            return str(self.client.images.get(self.pin.reference).id)
        except ImageNotFound:
            return None


@pytest.fixture
def client() -> Iterator[DockerClient]:
    with connect(120) as client:
        yield client


def forget(client: DockerClient, *references: str) -> None:
    for reference in references:
        try:
            client.images.remove(reference, force=True)
        except ImageNotFound:
            continue


@pytest.fixture
def pinned(client: DockerClient, tmp_path: Path) -> Iterator[Pinned]:
    name = f"assay-test-{uuid4().hex}"
    with registry(tmp_path) as running:
        image = tiny_image(client, f"localhost/{name}:made", name.encode() * 1000)
        manifest = running.push(client, image, f"library/{name}")
        config = running.manifest(manifest)["config"]["digest"]
        forget(client, f"localhost/{name}:made", image)
        pin = HelperPin(reference=f"{name}:1", manifest=manifest, config=config)
        yield Pinned(pin, running, client)
        forget(client, pin.reference, f"{running.address}/library/{name}@{manifest}", image)


def test_names_are_those_of_an_images_home_also_in_a_mirror() -> None:
    base = f"python:3.12-slim@{DIGEST}"

    assert place(base, None) == "python"
    assert place(base, "mirror.example:5000") == "mirror.example:5000/library/python"
    assert place(base, "mirror.example/hub") == "mirror.example/hub/library/python"
    assert place("some/thing:1", "mirror.example") == "mirror.example/some/thing"
    assert place(f"localhost:5000/thing@{DIGEST}", None) == "localhost:5000/thing"


@pytest.mark.parametrize("given", ["https://mirror.example", "mirror.example/", "a b", "-x", "mirror:port"])
def test_what_is_no_registrys_name_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError):
        choose_registry(given)
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ConfigurationError):
        choose_registry(None)
    assert choose_registry("mirror.example") == "mirror.example", "the option goes before the variable"


def test_an_image_is_the_pinned_one_by_the_name_that_either_store_gives_it() -> None:
    pin = HelperPin(reference="a:1", manifest=DIGEST, config=f"sha256:{'1' * 64}")

    helper_images.verify(pin, {"Id": pin.config})
    helper_images.verify(pin, {"Id": pin.manifest})
    with pytest.raises(VerificationError) as caught:
        helper_images.verify(pin, {"Id": f"sha256:{'2' * 64}"})
    assert "docker tag a:1 localhost/other-a:1; docker rmi a:1" in caught.value.next


@pytest.mark.docker
def test_a_helper_is_pulled_by_digest_tagged_and_recorded(pinned: Pinned) -> None:
    pinned.settle()

    (helper,) = helper_images.settle(pinned.client, [pinned.pin], None)
    assert helper.image_id == pinned.tagged
    assert helper.image_id in (pinned.pin.config, pinned.pin.manifest)
    assert helper.config_digest == pinned.pin.config
    assert pinned.pin.manifest in helper.manifest_digests
    assert (helper.pinned, helper.ours, len(helper.diff_ids)) == (True, False, 1)
    helper_images.compare(pinned.client, [helper])


@pytest.mark.docker
def test_what_is_there_is_not_asked_for_again(pinned: Pinned) -> None:
    pinned.settle()
    pinned.registry.blob(pinned.pin.manifest).unlink()

    pinned.settle("127.0.0.1:9")
    pinned.client.images.remove(pinned.pin.reference)
    pinned.settle()

    assert pinned.tagged is not None, "the digest was still there, though no tag was"


@pytest.mark.docker
def test_a_tag_that_names_something_else_is_left_alone(pinned: Pinned) -> None:
    other = tiny_image(pinned.client, pinned.pin.reference, b"another's")
    try:
        with pytest.raises(VerificationError) as caught:
            pinned.settle()

        assert pinned.tagged == other
        assert caught.value.exit_code == 5
        assert other in caught.value.why
        assert f"docker rmi {pinned.pin.reference}" in caught.value.next
    finally:
        forget(pinned.client, pinned.pin.reference)


@pytest.mark.docker
@pytest.mark.parametrize("which", ["manifest", "config", "layer", "truncated layer"])
def test_other_bytes_than_the_digest_names_are_refused(pinned: Pinned, which: str) -> None:
    manifest = pinned.registry.manifest(pinned.pin.manifest)
    digest = {
        "manifest": pinned.pin.manifest,
        "config": pinned.pin.config,
        "layer": manifest["layers"][0]["digest"],
        "truncated layer": manifest["layers"][0]["digest"],
    }[which]
    blob = pinned.registry.blob(digest)
    data = blob.read_bytes()
    # Another manifest is as well-formed as the right one: the registry itself would not give it otherwise.
    half = len(data) // 2
    other = {"manifest": data + b"\n", "truncated layer": data[:half]}
    blob.write_bytes(other.get(which, data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]))

    with pytest.raises(VerificationError) as caught:
        pinned.settle()

    assert pinned.pin.manifest in caught.value.what
    assert "verification failed" in caught.value.why
    assert pinned.tagged is None


@pytest.mark.docker
@pytest.mark.parametrize("which", ["manifest", "layer"])
def test_what_the_registry_does_not_have_is_missing(pinned: Pinned, which: str) -> None:
    layer = pinned.registry.manifest(pinned.pin.manifest)["layers"][0]["digest"]
    pinned.registry.blob(pinned.pin.manifest if which == "manifest" else layer).unlink()

    with pytest.raises(PrerequisiteError) as caught:
        pinned.settle()

    assert pinned.pin.reference in caught.value.what
    assert "unknown" in caught.value.why
    assert "--registry" in caught.value.next
    assert pinned.tagged is None


@pytest.mark.docker
def test_a_registry_that_asks_who_it_is_wants_a_login(pinned: Pinned, tmp_path: Path) -> None:
    with registry(tmp_path, asks_who=True) as closed, pytest.raises(PrerequisiteError) as caught:
        pinned.settle(closed.address)

    assert caught.value.next == f"docker login {closed.address}"
    assert pinned.tagged is None


@pytest.mark.docker
def test_the_command_asks_the_mirror_that_option_or_variable_name(pinned: Pinned) -> None:
    for words, variables in (
        (("--registry", pinned.registry.address), {}),
        ((), {VARIABLE: pinned.registry.address}),
    ):
        done = assay("sandbox", "verifiers", "--base", "registry", *words, **variables)

        assert done.returncode == 3
        assert f"asked for {pinned.registry.address}/library/python@sha256:" in done.stderr
        assert "next: assay sandbox --registry" in done.stderr


@pytest.mark.docker
def test_the_base_is_the_image_that_the_lock_pins_and_nothing_is_made_instead(
    pinned: Pinned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object) -> None:
        raise AssertionError("a base was made though the registry has the pinned one")

    monkeypatch.setattr(building, "debian_base", made)
    recipe = load_recipe("verifiers")
    pin = pinned.pin.reference.partition(":")[0]
    wanted = recipe.images.registry.model_copy(update={"reference": f"{pin}@{pinned.pin.manifest}"})
    images = recipe.images.model_copy(update={"registry": wanted})

    kind, base = building.choose_base(
        pinned.client, "auto", replace(recipe, images=images), pinned.registry.address
    )

    assert kind == "registry"
    assert base.image in (pinned.pin.config, pinned.pin.manifest)


@pytest.mark.docker
@pytest.mark.long
def test_a_sandbox_is_built_on_a_base_from_a_registry(
    image: sandbox.SandboxImage, client: DockerClient, runtime: Path, elsewhere: Path, tmp_path: Path
) -> None:
    """The base is the one of the image that is there, pushed first, so the same layer must come out of it."""
    lock = runtime / "images.lock"
    record = json.loads((SANDBOX / "verifiers.json").read_bytes())
    shutil.copytree(SANDBOX / "wheels", elsewhere / "wheels", symlinks=True, copy_function=os.link)
    with registry(tmp_path) as running:
        manifest = running.push(client, record["base_image"], "library/python")
        text = re.sub(r"(python:3\.12-slim@)sha256:[0-9a-f]{64}", rf"\g<1>{manifest}", lock.read_text())
        text = text.replace("/usr/local/bin/python3.12", image.python)
        lock.write_text(text.replace('"3.12"', f'"{image.python_version}"'))
        built = sandbox.build("verifiers", "registry", running.address, runtime)

    assert built.base == "registry"
    assert built.diff_ids == image.diff_ids, "the same files on the same base are the same layer"
    assert built.image_id != image.image_id, "and another recipe is another image"
    assert sandbox.check("verifiers", runtime) == built
