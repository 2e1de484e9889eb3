"""What an audit found, written beside the run: as JSON, or signed as the auditor's verification summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.files import json_text, write_atomic
from assay.signing.key import SigningKey
from assay.signing.vsa import Verification, seal_summary

SCHEMA = "assay/audit/v1"


def write(
    run: Path, output: Path, found: Verification, told: Mapping[str, Any], key: SigningKey | None
) -> None:
    """Write what was found.

    Args:
        run: The run directory.
        output: The file; it is replaced whole.
        found: What was found.
        told: The same as the command's JSON object has it.
        key: The auditor's own; None writes the JSON alone.

    Raises:
        VerificationError: it is to be signed, and no manifest names the run.
    """
    if key is not None:
        write_atomic(output, seal_summary(run, found, key))
        return
    value = {"schema_version": SCHEMA, "at": found.at, "strict": found.strict, "rescored": found.rescored}
    value |= {"trusted_key": found.trusted_key, **told}
    write_atomic(output, json_text(value).encode("utf-8"))
