"""`assay sandbox`: build the evaluators' sandbox images, or check those that are there."""

from __future__ import annotations

import argparse
import sys

from assay import pinset, sandbox
from assay.cli import answer, shared
from assay.errors import ConfigurationError, PrerequisiteError
from assay.evaluator import load_evaluator
from assay.names import nearest
from assay.paths import relative


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "sandbox", parents=[shared()], help="build and check the sandbox images", description=__doc__
    )
    parser.add_argument(
        "evaluators",
        nargs="*",
        metavar="EVALUATOR",
        help="whose image; by default of every evaluator that is set up and runs programs in a sandbox",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--check", action="store_true", help="verify the images that are there, and change nothing"
    )
    form.add_argument(
        "--write-pins",
        action="store_true",
        help="write the pins of programs that have none, for review and commit; nothing is built",
    )
    parser.add_argument(
        "--base",
        choices=("auto", "registry", "debian"),
        default="auto",
        help="where the base image comes from; auto asks a registry briefly, then takes Debian packages",
    )
    parser.add_argument(
        "--registry",
        metavar="HOST[/PREFIX]",
        help="a mirror to pull images from, by digest (or ASSAY_REGISTRY); official ones lie below library/",
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Build or check, print each image's identity, and return 0."""
    evaluators = chosen(arguments.evaluators)
    if arguments.write_pins:
        return write_pins(evaluators, arguments.json)
    images = {
        name: sandbox.check(name)
        if arguments.check
        else sandbox.build(name, arguments.base, arguments.registry)
        for name in evaluators
    }
    if arguments.json:
        described = {name: image.model_dump(mode="json") for name, image in images.items()}
        answer({"status": "ok", "images": described})
        return 0
    for name, image in images.items():
        lines = {
            "image": f"{image.reference} {image.image_id}",
            "recipe": image.recipe_digest,
            "base": f"{image.base}, Python {image.python_version}",
            **{f"helper {tag}": found for tag, found in image.helpers.items()},
        }
        sys.stdout.write("".join(f"{name}: {what:8} {value}\n" for what, value in lines.items()))
    return 0


def write_pins(evaluators: list[str], as_json: bool) -> int:
    """Write what pins are missing, name the files, and return 0."""
    written = [relative(path) for name in evaluators for path in sandbox.write_pins(name)]
    if as_json:
        answer({"status": "ok", "written": written})
    else:
        said = [f"{name}: written; review it, then commit it" for name in written]
        sys.stdout.write("\n".join(said or ["every program has its pins"]) + "\n")
    return 0


def chosen(names: list[str]) -> list[str]:
    """The evaluators that were named, each once; without names those that are set up and need a sandbox.

    Raises:
        ConfigurationError: there is none of a name.
        PrerequisiteError: none was named, and none is set up.
    """
    known = pinset.current().evaluators()
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f'there is no evaluator "{name}"', nearest(name, known), f"assay sandbox {known[0]}"
            )
    ready = [name for name in known if (load_evaluator(name).binaries / "python").exists()]
    found = list(dict.fromkeys(names)) or [name for name in ready if load_evaluator(name).program]
    if not found:
        raise PrerequisiteError(
            "no evaluator that needs a sandbox is set up",
            "an image holds the programs of an evaluator's environment",
            "eval/scripts/setup verifiers",
        )
    return found
