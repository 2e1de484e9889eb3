"""Verifying a run's statement: against the one key that is given, and without asking anybody anything.

The order is that of trust: the file's size, the envelope's form, the signature over the exact bytes, and only
then what these bytes say. Whether it is true, the audit finds out by making it again
(`assay.signing.gather`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from assay.digest import canonical_json, sha256_bytes
from assay.errors import VerificationError
from assay.profile import describe
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import STATEMENT
from assay.signing import dsse
from assay.signing.key import read_public_key
from assay.signing.predicate import PREDICATE_TYPE, EvalRun
from assay.signing.reading import LARGEST_BYTES, read_regular
from assay.signing.statement import Statement, parse


@dataclass(frozen=True)
class Verified:
    """A statement that the key has signed, about exactly this run's manifest.

    Attributes:
        key_id: The key.
        statement: What it says, as the signed bytes have it.
        predicate: The same as values.
        envelope_sha256: Of the file.
    """

    key_id: str
    statement: Statement
    predicate: EvalRun
    envelope_sha256: str


def verify(run: Path, public_key_pem: bytes) -> Verified:
    """Verify a run's statement.

    Args:
        run: The run directory; of it, the statement and the manifest are read.
        public_key_pem: The only key that is believed.

    Raises:
        ConfigurationError: it is no Ed25519 public key.
        VerificationError: the run is not signed, or not so that this key says this of this manifest.
    """
    key = read_public_key(public_key_pem)
    data = envelope_bytes(run)
    envelope = dsse.read(data, STATEMENT)
    dsse.verify(envelope, key, STATEMENT)
    statement = parse(envelope.payload, PREDICATE_TYPE, STATEMENT)
    manifest = read_regular(run / MANIFEST, LARGEST_BYTES)
    if manifest is None:
        raise dsse.unfit(STATEMENT, f"there is no {MANIFEST}, which it is about")
    found = sha256_bytes(manifest)
    if found != statement.manifest_sha256:
        raise dsse.unfit(
            STATEMENT,
            f"it is about a {MANIFEST} with the digest {statement.manifest_sha256}; here it is {found}",
        )
    return Verified(key.key_id, statement, _predicate(statement), sha256_bytes(data))


def _predicate(statement: Statement) -> EvalRun:
    signed = canonical_json(statement.predicate)
    try:
        found = EvalRun.model_validate_json(signed, strict=True)
    except ValidationError as error:
        raise dsse.unfit(STATEMENT, f"its predicate is not {PREDICATE_TYPE}: {describe(error)}") from error
    if canonical_json(found.model_dump(mode="json")) != signed:
        raise dsse.unfit(STATEMENT, f"its predicate is not in the form of {PREDICATE_TYPE}")
    return found


def envelope_bytes(run: Path) -> bytes:
    """The bytes of a run's statement.

    Raises:
        VerificationError: there is none, it is no regular file, or larger than may be read.
    """
    path = run / STATEMENT
    if not path.exists() and not path.is_symlink():
        raise VerificationError(
            "the run is not signed", f"it has no {STATEMENT}: nobody vouches for its bytes"
        )
    data = read_regular(path, dsse.LARGEST_BYTES)
    if data is None:
        raise dsse.unfit(STATEMENT, "it is no regular file")
    return data


def named_key(run: Path) -> str | None:
    """The key that a run's statement names, which nobody has verified; None where the run is not signed.

    Raises:
        VerificationError: there is a statement, and it cannot be read.
    """
    if not (run / STATEMENT).exists():
        return None
    return dsse.read(envelope_bytes(run), STATEMENT).key_id
