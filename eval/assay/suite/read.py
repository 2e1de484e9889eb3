"""From what a user names to a suite: a TOML file, a name in `eval/configs/suites`, or a profile.

`FILE.toml`, `FILE.toml:LIST`, `NAME`, `NAME:LIST`, `PROFILE`, `PROFILE/ENTRY`, or the `resolved.json` of an
earlier run. Whatever contradicts itself is refused here, all faults of a file at once, before anything is
looked for on the machine; what a backend alone can judge is left to `assay.suite.check`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay import pinset
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import relative
from assay.profile import load_profiles
from assay.suite.assemble import EVERYTHING, LIST, assemble
from assay.suite.document import TOLD, Document, read_document, refused
from assay.suite.faults import FaultyError, build
from assay.suite.place import place_faults
from assay.suite.secret import ADVICE, secrets_in, secrets_in_text
from assay.suite.suite import Suite

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class Asked:
    """What a user named, read.

    Attributes:
        suite: The suite.
        path: Its file; None for a profile.
        text: The file's own text, kept with a run; empty for a profile.
    """

    suite: Suite
    path: Path | None
    text: str


def folder() -> Path:
    """Where the suites are that can be named."""
    return pinset.current().configs / "suites"


def names() -> list[str]:
    """The names of every suite in the folder, sorted."""
    return sorted(path.stem for path in folder().glob("*.toml") if NAME.fullmatch(path.stem))


def read_suite(reference: str, environ: Mapping[str, str] | None = None) -> Asked:
    """The suite that was named.

    Args:
        reference: As the module's head says.
        environ: This process's variables: none of their secrets may stand in a file. `os.environ` when None.

    Raises:
        ConfigurationError: there is none of that name, or its file cannot be used.
    """
    variables = os.environ if environ is None else environ
    named, chosen = split(reference)
    if named.endswith(".toml"):
        return _read_file(Path(named), chosen, variables)
    if named in names():
        return _read_file(folder() / f"{named}.toml", chosen, variables)
    if named.endswith(".json"):
        return _read_resolved(Path(named), chosen, variables)
    profile, slash, entry = named.partition("/")
    if chosen is None and profile in load_profiles() and bool(slash) == bool(entry):
        # Here alone, since it brings everything that profiles need.
        from assay.suite.of_profile import of_profile

        return Asked(of_profile(profile, entry or None, environ=variables), None, "")
    if Path(named).is_file():
        raise refused(Path(named), "the name of a suite's file ends in .toml", "give the file such a name")
    raise ConfigurationError(
        f'there is no suite "{named}"',
        nearest(named, [*names(), *load_profiles()]),
        "name one of those, or a file: --suite FILE.toml[:LIST]",
    )


def gone(reference: str) -> bool:
    """Whether a reference names a file that is not there any more."""
    named, _ = split(reference)
    return named.endswith((".toml", ".json")) and not os.path.lexists(named)


def split(reference: str) -> tuple[str, str | None]:
    """A reference without its list, and the list's name; None where it names none."""
    named, colon, chosen = reference.rpartition(":")
    if colon and named and LIST.fullmatch(chosen) and not Path(reference).is_file():
        return named, None if chosen == EVERYTHING else chosen
    return reference, None


def _read_file(path: Path, chosen: str | None, environ: Mapping[str, str]) -> Asked:
    document = _read(path, environ)
    if not NAME.fullmatch(path.stem):
        raise refused(
            path,
            "a suite is called like its file: lower-case letters, digits and hyphens, at most 64",
            "give the file such a name, ending in .toml",
        )
    try:
        suite = assemble(document.value, path.stem, chosen)
    except FaultyError as faults:
        raise refused(path, faults.found) from None
    return Asked(suite, path, document.text)


def _read_resolved(path: Path, chosen: str | None, environ: Mapping[str, str]) -> Asked:
    """A suite as a run resolved it."""
    document = _read(path, environ)
    if chosen is not None:
        raise refused(path, "a resolved suite has no lists", f"leave :{chosen} out")
    try:
        suite = build(Suite, document.value, "")
        faults = [fault for target in suite.targets for fault in place_faults(target)]
    except FaultyError as found:
        faults = list(found.found)
    if faults:
        raise refused(path, faults, "name the suite instead")
    if suite.pins != pinset.current().name:
        raise refused(
            path,
            f'it is of the pin set "{suite.pins}", and the command works with "{pinset.current().name}"',
            "give the pin set's folder: --pins DIR (none for production)",
        )
    return Asked(suite, path, document.text)


def _read(path: Path, environ: Mapping[str, str]) -> Document:
    """The file's document; ConfigurationError when a secret stands in it."""
    document = read_document(path)
    found = list(secrets_in(document.value, environ)) or list(secrets_in_text(document.text, environ))
    if found:
        raise ConfigurationError(
            f"the suite {relative(path)} holds a secret", "; ".join(found[:TOLD]), ADVICE
        )
    return document
