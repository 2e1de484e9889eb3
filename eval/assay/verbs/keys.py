"""`assay keys new|show`: make a key that runs are signed with; say whose a public key is."""

from __future__ import annotations

import argparse
import getpass
import os
import re
import sys
from pathlib import Path

from assay.cli import answer, shared
from assay.errors import ConfigurationError
from assay.paths import OWNED, owned_directory
from assay.profile import SEGMENT
from assay.signing.key import (
    KEY_VARIABLE,
    UNLOCK_VARIABLE,
    load_public_key,
    make_key,
    read_passphrase,
)

FOLDER = OWNED / "keys"


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "keys",
        help="make a key to sign runs with, or name one",
        description="Make an Ed25519 key that signs runs and audits, or say whose a public key is.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    making = actions.add_parser("new", parents=[shared()], help="make a key; none is ever overwritten")
    making.add_argument("--name", default="assay", metavar="NAME", help="of its two files (default: assay)")
    making.add_argument(
        "--folder", type=Path, metavar="DIR", help="where they are written (default: .assay/keys)"
    )
    making.add_argument(
        "--encrypt",
        action="store_true",
        help="encrypt the private half; its passphrase is asked for at the terminal, or is in the private "
        f"file that {UNLOCK_VARIABLE} names",
    )
    making.set_defaults(handler=new)
    showing = actions.add_parser("show", parents=[shared()], help="say the id of a public key")
    showing.add_argument(
        "public", metavar="PUB", type=Path, help="a public key: a file that ends in .pub.pem"
    )
    showing.set_defaults(handler=show)


def new(arguments: argparse.Namespace) -> int:
    """Make a key and print where its halves are."""
    if not re.fullmatch(SEGMENT, arguments.name):
        raise ConfigurationError(
            f"--name {arguments.name!r} is no name of a key", "it must be one path segment", "--name team"
        )
    passphrase = _chosen() if arguments.encrypt else None
    private, public, key = make_key(_folder(arguments.folder), arguments.name, passphrase)
    print(f"private: {private}{' (encrypted)' if passphrase is not None else ''}: it is for nobody else")
    print(
        f"public:  {public}: it is for everybody who checks your runs (assay audit RUN --key {public.name})"
    )
    print(f"key id:  {key.key_id}")
    print(f"to sign what you run: export {KEY_VARIABLE}={private}")
    if arguments.json:
        answer(
            {
                "status": "ok",
                "key_id": key.key_id,
                "private": str(private),
                "public": str(public),
                "encrypted": passphrase is not None,
            }
        )
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Print the id of a public key."""
    key = load_public_key(arguments.public)
    print(f"{arguments.public}: Ed25519, key id {key.key_id}")
    if arguments.json:
        answer({"status": "ok", "key_id": key.key_id, "algorithm": "ed25519"})
    return 0


def _folder(given: Path | None) -> Path:
    if given is None:
        return owned_directory(FOLDER, mode=0o700)
    if given.is_symlink() or not given.is_dir():
        raise ConfigurationError(f"--folder {given} is not a directory", "", f"mkdir -m 700 -p {given}")
    return given.resolve()


def _chosen() -> bytes:
    """The passphrase of a new key, asked for twice where it is typed."""
    file = os.environ.get(UNLOCK_VARIABLE, "")
    if file:
        return read_passphrase(Path(file))
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "the key cannot be encrypted",
            "nobody is at a terminal to be asked for a passphrase",
            f"name a private file that holds it: {UNLOCK_VARIABLE}",
        )
    first = getpass.getpass("passphrase of the new key: ")
    if getpass.getpass("the same again: ") != first:
        raise ConfigurationError("the two passphrases differ", "", "type the command again")
    return first.encode("utf-8")
