"""Signing a run when it has ended: the last thing that is written, after the manifest that it is about."""

from __future__ import annotations

from pathlib import Path

from assay.errors import VerificationError
from assay.files import partial_files, write_atomic
from assay.record.manifest import STATEMENT, compare, load_manifest
from assay.signing import dsse
from assay.signing.gather import statement_of
from assay.signing.key import KEY_VARIABLE, SigningKey
from assay.signing.verify import named_key

UNSIGNED = f"unsigned: nobody vouches for these bytes (assay keys new makes a key, {KEY_VARIABLE} names it)"


def sign_run(run: Path, key: SigningKey | None) -> None:
    """Write the statement of a recorded run, atomically; without a key, nothing is written.

    Args:
        run: The run directory; its manifest has just been written, which withdrew any older statement.
        key: Who vouches for it.

    Raises:
        VerificationError: the run cannot be read.
        RunError: the disk is full.
    """
    if key is not None:
        write_atomic(run / STATEMENT, dsse.seal(statement_of(run).payload(), key))


def sign_late(run: Path, key: SigningKey | None) -> None:
    """Sign a finished run that was killed between its manifest and its statement.

    What a killed write of a statement or a report left half-written in it is removed, with or without a key.

    Args:
        run: The run directory; nobody writes into it.
        key: Who vouches for it.

    Raises:
        VerificationError: it is not what its manifest says, and so nobody should vouch for it.
    """
    listed = load_manifest(run)
    for path in partial_files(run):
        if path.relative_to(run).as_posix() not in listed:
            path.unlink()
    if key is None or (run / STATEMENT).exists():
        return
    differences = compare(run)
    if differences:
        raise VerificationError(
            f"{run} is not signed: {differences[0].path}: {differences[0].what}",
            "it is not what its manifest says",
            f"assay audit {run}",
        )
    sign_run(run, key)


def signature_said(run: Path) -> tuple[str | None, str]:
    """The key that a run's statement names, if it has one, and the line that a reader of its result sees."""
    try:
        key_id = named_key(run)
    except VerificationError as error:
        return None, f"unsigned: {error.what}: {error.why}"
    if key_id is None:
        return None, UNSIGNED
    return key_id, f"signed: by the key {key_id}, as {STATEMENT} says (assay audit --key PUB verifies it)"
