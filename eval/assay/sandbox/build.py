"""Building an evaluator's sandbox image: base, Dockerfile, one flat layer, one record.

The steps are the engine's own (its build, its export, its load), called through its API. Nothing half-made
is left under a name: an image is tagged, and its record written, only after everything has been made. A tag
carries the digests of recipe and configuration, so checkouts that share an engine never move each other's.
"""

from __future__ import annotations

import io
import logging
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from docker import DockerClient

from assay.console import say, step
from assay.digest import combined_digest, sha256_file, value_digest
from assay.errors import AssayError, PrerequisiteError, RunError
from assay.paths import owned_directory
from assay.sandbox import helper_images
from assay.sandbox.archive import Image, Layer, layer_from_export, make_image, write_archive
from assay.sandbox.check import again, compare, read_current
from assay.sandbox.context import make_context
from assay.sandbox.debian import REPOSITORY, Base, debian_base
from assay.sandbox.engine import FAILURES, WORK_WITHIN_S, connect, require_engine
from assay.sandbox.images import BaseKind, RegistryBase
from assay.sandbox.load import inspect, load_images_from
from assay.sandbox.recipe import Recipe, load_recipe
from assay.sandbox.record import Record, SandboxImage, folder, write_record
from assay.sandbox.registry import choose_registry, obtain
from assay.sandbox.turn import turn

logger = logging.getLogger(__name__)

BaseChoice = Literal["registry", "debian", "auto"]
SANDBOX = "localhost/assay-sandbox"
HELPER = "localhost/assay-helper"


def build(
    evaluator: str,
    base: BaseChoice = "auto",
    registry: str | None = None,
    runtime: Path | None = None,
) -> SandboxImage:
    """The sandbox image of an evaluator, built unless the one that is there is of this recipe.

    Args:
        evaluator: Whose programs it holds.
        base: Where its base comes from; "auto" asks the registry briefly, then takes Debian packages.
        registry: A mirror to ask for images, HOST[:PORT][/PREFIX]; None for ASSAY_REGISTRY, else none.
        runtime: Where Dockerfile, image pins and program pins are; the pin set's when None.

    Raises:
        ConfigurationError: a file of `runtime/` is missing or not valid, or `registry` names none.
        PrerequisiteError: no engine answers, a program has no pins, or what the build needs cannot be had.
        VerificationError: a program, its lock, a download or a helper image is not the pinned one.
        RunError: the engine fails, or the disk is full.
    """
    recipe, chosen = load_recipe(evaluator, runtime), choose_registry(registry)
    require_engine()
    recipe.require_pins()
    with turn(folder()):
        work = owned_directory(folder() / "work")
        try:
            with connect(WORK_WITHIN_S) as client:
                helper_images.settle_pinned(client, recipe.helpers, chosen)
                found = built_before(client, recipe, base)
                if found is not None:
                    return found
                kind, made = choose_base(client, base, recipe, chosen)
                return assemble(client, kind, made, recipe, work)
        except FAILURES as error:
            raise RunError("the Docker engine failed in mid-build", str(error), again(evaluator)) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


def built_before(client: DockerClient, recipe: Recipe, base: BaseChoice) -> SandboxImage | None:
    """The image of this recipe, if it is there; its record is renewed where a helper is another by now."""
    try:
        record = read_current(recipe)
        compare(client, record)
        if base not in ("auto", record.image.base):
            return None
        settled = helper_images.settle(client, recipe.helpers, helper_made(client, record.image))
    except AssayError as error:
        logger.info("building, because %s", error)
        return None
    if settled != record.helpers:
        image = record.image.model_copy(update={"helpers": ids(settled)})
        record = record.model_copy(update={"image": image, "helpers": settled})
        write_record(record)
    return record.image


def helper_made(client: DockerClient, image: SandboxImage) -> str | None:
    """Id of the helper image that was made with an image; None when there is none."""
    found = inspect(client, helper_tag(image.evaluator, image.recipe_digest, image.diff_ids[0]))
    return None if found is None else str(found["Id"])


def ids(settled: tuple[helper_images.Helper, ...]) -> dict[str, str]:
    """Each helper's id by its tag."""
    return {helper.reference: helper.image_id for helper in settled}


def helper_tag(evaluator: str, recipe_digest: str, diff_id: str) -> str:
    """The tag of the helper image that is made of a sandbox's layer."""
    return f"{HELPER}:{evaluator}-{recipe_digest[:12]}-{diff_id.removeprefix('sha256:')[:12]}"


def choose_base(
    client: DockerClient, wanted: BaseChoice, recipe: Recipe, registry: str | None
) -> tuple[BaseKind, Base]:
    """Get the base image: from a registry, or from Debian packages when none gives it and these may be.

    Raises:
        PrerequisiteError: the wanted base cannot be had.
        VerificationError: the registry gives other bytes than its digest names.
    """
    images = recipe.images
    if wanted != "debian":
        try:
            return "registry", registry_base(client, images.registry, registry)
        except PrerequisiteError as error:
            if wanted == "registry":
                raise
            say(f"assay: {error.what}; making the base from Debian packages instead")
    with step(f"base image from Debian packages ({images.debian.suite})"):
        return "debian", debian_base(client, images.debian, images.time.epoch, folder())


def registry_base(client: DockerClient, wanted: RegistryBase, registry: str | None) -> Base:
    """The base by its digest, pulled if need be (see `obtain` for the errors)."""
    found = obtain(client, wanted.reference, wanted.reference.rpartition("@")[2], registry)
    return Base(str(found["Id"]), {})


def assemble(client: DockerClient, kind: BaseKind, base: Base, recipe: Recipe, work: Path) -> SandboxImage:
    """Build on the base, flatten, load and record."""
    parts, pinned = recipe.parts(kind), recipe.images.base(kind)
    digest = combined_digest(parts)
    with step(f"the programs of {recipe.evaluator}, locked and held against their pins"):
        locks = make_context(recipe, kind, work / "context")
    with step("building the image"):
        arguments = {"BASE": base.image, "PYTHON": pinned.python}
        run_dockerfile(client, work / "context", arguments, kind, prepared=True)
        built = run_dockerfile(client, work / "context", arguments, kind)
    try:
        with step("flattening it into one layer"):
            layer, settings = flatten(client, built, work, recipe.images.time.epoch)
    finally:
        client.images.remove(built, force=True)
    with step("loading it"):
        made = make_images(recipe, digest, layer, settings, str(client.version()["Arch"]))
        write_archive(work / "image.tar", layer, made)
        loaded = load_images_from(client, work / "image.tar", made)
    settled = helper_images.settle(client, recipe.helpers, loaded[1] if len(loaded) > 1 else None)
    image = SandboxImage(
        evaluator=recipe.evaluator,
        reference=made[0].tags[0],
        image_id=loaded[0],
        config_digest=made[0].config_digest,
        diff_ids=(layer.diff_id,),
        recipe_digest=digest,
        base=kind,
        python=pinned.python,
        python_version=pinned.python_version,
        programs={program.name: program.sha256 for program in recipe.programs},
        helpers=ids(settled),
    )
    write_record(
        Record(
            image=image,
            recipe=parts,
            manifest_digests=manifests(inspect(client, loaded[0]) or {}, made[0]),
            base_image=base.image,
            base_packages=base.packages,
            packages=debian_packages(layer),
            locks=locks,
            helpers=settled,
            engine=require_engine().describe(),
        )
    )
    return image


def make_images(
    recipe: Recipe, digest: str, layer: Layer, settings: dict[str, Any], architecture: str
) -> tuple[Image, ...]:
    """The images of the layer: the sandbox, and, where a helper is to be made here, the same as root."""
    epoch = recipe.images.time.epoch
    labelled = {**settings, "Labels": {helper_images.ROLE: "sandbox", "assay.recipe": digest}}
    sandbox = make_image(layer, (), labelled, epoch, architecture)
    tag = f"{SANDBOX}:{recipe.evaluator}-{digest[:12]}-{sandbox.config_digest.removeprefix('sha256:')[:12]}"
    images = [replace(sandbox, tags=(tag,))]
    if any(pin.made for pin in recipe.helpers):
        as_root = {
            **settings,
            "User": "",
            "Labels": {helper_images.ROLE: helper_images.MADE, "assay.recipe": digest},
        }
        tag = helper_tag(recipe.evaluator, digest, layer.diff_id)
        images.append(make_image(layer, (tag,), as_root, epoch, architecture))
    return tuple(images)


def run_dockerfile(
    client: DockerClient, context: Path, arguments: dict[str, str], kind: BaseKind, prepared: bool = False
) -> str:
    """Let the engine build the context and return the image's id; RunError with its last words otherwise.

    With `prepared` only the first stage is built, which every evaluator's image begins with: its tag keeps it
    in the engine's build cache. The second is removed once it was flattened, so it is always built anew.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(context, arcname=".")
    archive.seek(0)
    said: list[str] = []
    built = ""
    stage = value_digest([arguments, sha256_file(context / "Dockerfile")])[:12]
    # Only a base from a registry still needs packages; a base from Debian packages is built without network.
    for event in client.api.build(
        fileobj=archive,
        custom_context=True,
        buildargs=arguments,
        network_mode="none" if kind == "debian" else None,
        target="prepared" if prepared else "",
        tag=f"{REPOSITORY}:prepared-{stage}" if prepared else None,
        rm=True,
        forcerm=True,
        decode=True,
    ):
        said.append(str(event.get("stream") or event.get("error") or "").strip())
        logger.debug("%s", said[-1])
        if "error" in event:
            last = " | ".join([line for line in said if line][-4:])
            raise RunError(
                "the image could not be built", last, "eval/scripts/sandbox --verbose shows the whole build"
            )
        # Every stage says its id; the last one is the image.
        built = event.get("aux", {}).get("ID", built)
    if built:
        return str(built)
    raise RunError("the engine built no image", " | ".join(said[-4:]), "eval/scripts/sandbox --verbose")


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
