"""A verification summary: what an auditor found of a run, under his own key.

The predicate is SLSA's `verification_summary/v1`, so that tools that know it can tell by whom, under which
policy and with which result the run was verified. What Assay found check by check stands beside it under
`assay_checks`, as the format lets extensions be named. Whoever trusts the auditor's key need not audit again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assay import __version__
from assay.digest import sha256_bytes, value_digest
from assay.errors import VerificationError
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import STATEMENT
from assay.signing import dsse
from assay.signing.key import PublicKey, SigningKey
from assay.signing.reading import LARGEST_BYTES, read_regular
from assay.signing.statement import Statement, parse

PREDICATE_TYPE = "https://slsa.dev/verification_summary/v1"
VERIFIER = "urn:assay:audit"
POLICY = "urn:assay:audit-policy/v1"
LEVEL, STRICT_LEVEL, FAILED_LEVEL = "ASSAY_AUDITED", "ASSAY_AUDITED_STRICTLY", "FAILED"


@dataclass(frozen=True)
class Verification:
    """An audit that has ended.

    Attributes:
        checks: Each check as JSON values, in their order: name, verdict, what it rests on, evidence.
        passed: Whether none failed, and under `strict` none was unknown.
        strict: Whether what could not be told counted as failed.
        rescored: Whether the saved answers were scored again.
        trusted_key: The id of the key that the run's statement was held against; None for none.
        at: When it ended, UTC, ISO 8601.
    """

    checks: Sequence[Mapping[str, Any]]
    passed: bool
    strict: bool
    rescored: bool
    trusted_key: str | None
    at: str


def statement_of(run: Path, found: Verification) -> Statement:
    """The verification summary of a run.

    Args:
        run: The run directory, as it was audited.
        found: What the audit found.

    Raises:
        VerificationError: there is no manifest: no file's digest names the run.
    """
    manifest = read_regular(run / MANIFEST, LARGEST_BYTES)
    if manifest is None:
        raise VerificationError(
            f"no verification summary of {run} is written", f"it has no {MANIFEST} to be about", ""
        )
    policy = {"strict": found.strict, "rescored": found.rescored, "trusted_key": found.trusted_key}
    passed = STRICT_LEVEL if found.strict else LEVEL
    envelope = read_regular(run / STATEMENT, dsse.LARGEST_BYTES)
    attested = [] if envelope is None else [{"uri": STATEMENT, "digest": {"sha256": sha256_bytes(envelope)}}]
    predicate = {
        "verifier": {"id": VERIFIER, "version": {"assay": __version__}},
        "timeVerified": found.at,
        "resourceUri": f"urn:assay:run:{quote(run.resolve().name, safe='')}",
        "policy": {"uri": POLICY, "digest": {"sha256": value_digest(policy)}, "annotations": policy},
        "inputAttestations": attested,
        "verificationResult": "PASSED" if found.passed else "FAILED",
        "verifiedLevels": [passed if found.passed else FAILED_LEVEL],
        "slsaVersion": "1.1",
        "assay_checks": [dict(check) for check in found.checks],
    }
    return Statement(sha256_bytes(manifest), PREDICATE_TYPE, predicate)


def seal_summary(run: Path, found: Verification, key: SigningKey) -> bytes:
    """The verification summary in an envelope under the auditor's key (raises as `statement_of`)."""
    return dsse.seal(statement_of(run, found).payload(), key)


def open_summary(data: bytes, key: PublicKey, name: str) -> Statement:
    """The verification summary in an envelope.

    Args:
        data: The file's bytes.
        key: The auditor who is believed.
        name: What it is, for an error.

    Raises:
        VerificationError: it is none, or not signed by exactly this key.
    """
    envelope = dsse.read(data, name)
    dsse.verify(envelope, key, name)
    return parse(envelope.payload, PREDICATE_TYPE, name)
