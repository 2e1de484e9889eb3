"""`assay sandbox`: build the sandbox image, or check the one that is there."""

from __future__ import annotations

import argparse
import sys

from assay import sandbox
from assay.cli import answer, shared


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "sandbox", parents=[shared()], help="build and check the sandbox image", description=__doc__
    )
    parser.add_argument(
        "--check", action="store_true", help="verify the image that is there, and change nothing"
    )
    parser.add_argument(
        "--base",
        choices=("auto", "registry", "debian"),
        default="auto",
        help="where the base image comes from; auto asks a registry briefly, then takes Debian packages",
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Build or check, print the image's identity, and return 0."""
    image = sandbox.check() if arguments.check else sandbox.build(arguments.base)
    if arguments.json:
        answer({"status": "ok", **image.model_dump(mode="json")})
    else:
        lines = {
            "image": f"{image.reference} {image.image_id}",
            "recipe": image.recipe_digest,
            "base": image.base,
            "network": image.network_image_id,
        }
        for name, value in lines.items():
            sys.stdout.write(f"{name:8} {value}\n")
    return 0
