"""Building the sandbox image: base, Dockerfile, one flat layer, two images, one record.

The steps are the engine's own (its build, its export, its load), called through its API. Nothing half-made
is left under a name: tags move and the record is written only after everything has been made.
"""

from __future__ import annotations

import io
import logging
import shutil
import tarfile
from pathlib import Path
from typing import Any, Literal, cast

from docker import DockerClient

from assay.console import say, step
from assay.digest import combined_digest, sha256_file
from assay.errors import AssayError, PrerequisiteError, RunError
from assay.evaluator import Program
from assay.paths import owned_directory
from assay.sandbox import network
from assay.sandbox.archive import Image, Layer, layer_from_export, make_image, write_archive
from assay.sandbox.check import check
from assay.sandbox.debian import Base, debian_base
from assay.sandbox.engine import FAILURES, WORK_WITHIN_S, connect, require_engine
from assay.sandbox.images import (
    BaseKind,
    ImagesLock,
    RegistryBase,
    load_images,
    load_programs,
    runtime_file,
)
from assay.sandbox.load import inspect, load_images_from
from assay.sandbox.programs import export, lock
from assay.sandbox.recipe import recipe
from assay.sandbox.record import REFERENCE, Record, SandboxImage, folder, write_record
from assay.sandbox.turn import turn
from assay.sandbox.uv import pinned_uv
from assay.sandbox.wheels import copy_cache, wheel_cache

logger = logging.getLogger(__name__)

BaseChoice = Literal["registry", "debian", "auto"]
REGISTRY_WITHIN_S = 15
AGAIN = "eval/scripts/sandbox"


def build(base: BaseChoice = "auto", runtime: Path | None = None) -> SandboxImage:
    """The sandbox image, built unless the one that is there is of this recipe.

    Args:
        base: Where its base comes from; "auto" asks the registry briefly, then takes Debian packages.
        runtime: Where Dockerfile, image pins and program pins are.

    Raises:
        ConfigurationError: a file of `runtime/` is missing or not valid.
        PrerequisiteError: no engine answers, or something the build needs cannot be had.
        VerificationError: a program, its lock or a download is not the pinned one.
        RunError: the engine fails, or the disk is full.
    """
    require_engine()
    images, programs = load_images(runtime), load_programs()
    with turn(folder()):
        try:
            found = check(runtime)
            if base in ("auto", found.base):
                return found
        except AssayError as error:
            logger.info("building, because %s", error)
        work = owned_directory(folder() / "work")
        try:
            with connect(WORK_WITHIN_S) as client:
                kind, made = choose_base(client, base, images)
                return assemble(client, kind, made, images, programs, runtime, work)
        except FAILURES as error:
            raise RunError("the Docker engine failed in mid-build", str(error), AGAIN) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


def choose_base(client: DockerClient, wanted: BaseChoice, images: ImagesLock) -> tuple[BaseKind, Base]:
    """Get the base image: from the registry, or from Debian packages when it does not answer and may not.

    Raises:
        PrerequisiteError: the wanted base cannot be had.
    """
    if wanted != "debian":
        try:
            return "registry", registry_base(client, images.registry)
        except PrerequisiteError as error:
            if wanted == "registry":
                raise
            say(f"assay: {error.what}; making the base from Debian packages instead")
    with step(f"base image from Debian packages ({images.debian.suite})"):
        return "debian", debian_base(client, images.debian, images.time.epoch, folder())


def registry_base(client: DockerClient, wanted: RegistryBase) -> Base:
    """The base by its digest, pulled if need be; PrerequisiteError when no registry gives it."""
    if inspect(client, wanted.reference) is None:
        try:
            with connect(REGISTRY_WITHIN_S) as brief:
                brief.images.get_registry_data(wanted.reference)
            with step(f"base image {wanted.reference}"):
                client.images.pull(wanted.reference)
        except FAILURES as error:
            raise PrerequisiteError(
                f"no registry gives {wanted.reference}", str(error).splitlines()[0], f"{AGAIN} --base debian"
            ) from error
    return Base(wanted.reference, {})


def assemble(
    client: DockerClient,
    kind: BaseKind,
    base: Base,
    images: ImagesLock,
    programs: tuple[Program, ...],
    runtime: Path | None,
    work: Path,
) -> SandboxImage:
    """Build on the base, flatten, load and record."""
    parts = recipe(kind, images, programs, runtime)
    digest = combined_digest(parts)
    with step("the evaluator's programs, locked and held against their pins"):
        locks = make_context(images, kind, programs, runtime, work / "context")
    with step("building the image"):
        built = run_dockerfile(client, work / "context", base.image, images.base(kind).python, kind)
    try:
        with step("flattening it into one layer"):
            layer, settings = flatten(client, built, work, images.time.epoch)
    finally:
        client.images.remove(built, force=True)
    with step("loading it"):
        architecture = str(client.version()["Arch"])
        made = [
            make_image(layer, (tag,), labelled(settings, role, digest), images.time.epoch, architecture)
            for tag, role in ((REFERENCE, "sandbox"), (network.OURS, "network"))
        ]
        write_archive(work / "image.tar", layer, tuple(made))
        loaded = load_images_from(client, work / "image.tar", tuple(made))
    network_id, ours = network.claim(client)
    if not ours:
        say(f"assay: {network.TAG} is another's image, {network_id}: it will cut the containers' egress")
    attributes = inspect(client, loaded[0]) or {}
    image = SandboxImage(
        reference=REFERENCE,
        image_id=loaded[0],
        config_digest=made[0].config_digest,
        diff_ids=(layer.diff_id,),
        recipe_digest=digest,
        base=kind,
        programs={program.name: program.sha256 for program in programs},
        network_image_id=network_id,
    )
    write_record(
        Record(
            image=image,
            recipe=parts,
            manifest_digests=manifests(attributes, made[0]),
            base_image=base.image,
            base_packages=base.packages,
            packages=debian_packages(layer),
            locks=locks,
            network_ours=ours,
            engine=require_engine().describe(),
        )
    )
    return image


def make_context(
    images: ImagesLock, kind: BaseKind, programs: tuple[Program, ...], runtime: Path | None, context: Path
) -> dict[str, str]:
    """Put all that the Dockerfile copies into the context; returns each native lock's SHA-256 by program."""
    shutil.rmtree(context, ignore_errors=True)
    (context / "programs").mkdir(parents=True)
    shutil.copyfile(runtime_file("Dockerfile", runtime), context / "Dockerfile")
    sources = export(programs)
    locks = {}
    for program in programs:
        path = lock(program, sources[program.name], context / "programs", runtime)
        locks[program.name] = sha256_file(path.with_name(path.name + ".lock"))
        pins = runtime_file(f"{program.name}.pins", runtime)
        cache = wheel_cache(pins, images.uv, images.base(kind).python_version)
        copy_cache(cache, context / "uv-cache")
    pinned_uv(images.uv, context)
    return locks


def run_dockerfile(client: DockerClient, context: Path, base: str, python: str, kind: BaseKind) -> str:
    """Let the engine build the context and return the image's id; RunError with its last words otherwise."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(context, arcname=".")
    archive.seek(0)
    said: list[str] = []
    # Only a base from a registry still needs packages; a base from Debian packages is built without network.
    for event in client.api.build(
        fileobj=archive,
        custom_context=True,
        buildargs={"BASE": base, "PYTHON": python},
        network_mode="none" if kind == "debian" else None,
        rm=True,
        forcerm=True,
        nocache=True,
        decode=True,
    ):
        said.append(str(event.get("stream") or event.get("error") or "").strip())
        logger.debug("%s", said[-1])
        if "error" in event:
            last = " | ".join([line for line in said if line][-4:])
            raise RunError("the image could not be built", last, f"{AGAIN} --verbose shows the whole build")
        if "ID" in event.get("aux", {}):
            return str(event["aux"]["ID"])
    raise RunError("the engine built no image", " | ".join(said[-4:]), f"{AGAIN} --verbose")


def flatten(client: DockerClient, built: str, work: Path, epoch: int) -> tuple[Layer, dict[str, Any]]:
    """The built image's files as one layer with fixed dates, and its settings."""
    config = client.images.get(built).attrs["Config"]
    container = client.containers.create(built)
    try:
        with (work / "export.tar").open("wb") as file:
            for chunk in container.export():
                file.write(cast(bytes, chunk))
    finally:
        container.remove(force=True)
    layer = layer_from_export(work / "export.tar", work / "layer.tar", epoch)
    (work / "export.tar").unlink()
    return layer, {name: config[name] for name in ("Env", "User", "WorkingDir", "Cmd")}


def labelled(settings: dict[str, Any], role: str, digest: str) -> dict[str, Any]:
    """Settings with labels that say what the image is; the network image runs as root."""
    user = settings["User"] if role == "sandbox" else ""
    return {**settings, "User": user, "Labels": {network.ROLE: role, "assay.recipe": digest}}


def manifests(attributes: dict[str, Any], made: Image) -> tuple[str, ...]:
    """Manifest digests by which the engine knows the image, where it does."""
    found = {str(name).rpartition("@")[2] for name in attributes.get("RepoDigests") or []}
    if attributes.get("Id") != made.config_digest:
        found.add(str(attributes.get("Id")))
    return tuple(sorted(found))


def debian_packages(layer: Layer) -> dict[str, str]:
    """Every Debian package that the layer's dpkg says is installed, by name, with its version."""
    with tarfile.open(layer.path) as tar:
        status = tar.extractfile("var/lib/dpkg/status")
        text = status.read().decode("utf-8") if status else ""
    found = {}
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line[:40])
        if "Package" in fields and "Version" in fields:
            found[fields["Package"]] = fields["Version"]
    return found
