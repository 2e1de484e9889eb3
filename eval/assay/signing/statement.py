"""in-toto Statements, version 1: one subject by its digest, and what is said of it, as canonical bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.digest import canonical_json
from assay.record.manifest import NAME as MANIFEST
from assay.signing.dsse import strict_json, unfit

TYPE = "https://in-toto.io/Statement/v1"


@dataclass(frozen=True)
class Statement:
    """What is said of a run.

    Attributes:
        manifest_sha256: Of the `manifest.json` that it is said of.
        predicate_type: What kind of thing is said.
        predicate: What is said, as JSON values.
    """

    manifest_sha256: str
    predicate_type: str
    predicate: Mapping[str, Any]

    def payload(self) -> bytes:
        """Its one form: canonical JSON (sorted keys, no spaces, UTF-8)."""
        return canonical_json(
            {
                "_type": TYPE,
                "subject": [{"name": MANIFEST, "digest": {"sha256": self.manifest_sha256}}],
                "predicateType": self.predicate_type,
                "predicate": self.predicate,
            }
        )


def parse(payload: bytes, predicate_type: str, name: str) -> Statement:
    """The statement in signed bytes.

    Args:
        payload: The bytes.
        predicate_type: The only kind that is accepted.
        name: What they are, for an error.

    Raises:
        VerificationError: they are none, of another kind, about something else, or not in the canonical form.
    """
    value = strict_json(payload, name)
    try:
        if value.keys() != {"_type", "subject", "predicateType", "predicate"}:
            raise ValueError(f"the statement holds {', '.join(sorted(map(repr, value)))}")
        if value["_type"] != TYPE:
            raise ValueError(f"the statement is of the type {value['_type']!r}, not {TYPE!r}")
        if value["predicateType"] != predicate_type:
            raise ValueError(
                f"the predicate is of the type {value['predicateType']!r}, not {predicate_type!r}"
            )
        subjects, predicate = value["subject"], value["predicate"]
        if not isinstance(subjects, list) or len(subjects) != 1:
            raise ValueError("the statement does not have exactly one subject")
        if not isinstance(subjects[0], dict) or subjects[0].get("name") != MANIFEST:
            raise ValueError(f"the statement's subject is not {MANIFEST}")
        digest = subjects[0].get("digest")
        if subjects[0].keys() != {"name", "digest"} or not isinstance(digest, dict):
            raise ValueError("the statement's subject is not a name and a digest")
        if digest.keys() != {"sha256"} or not isinstance(digest["sha256"], str):
            raise ValueError("the statement's subject does not have exactly one digest, by sha256")
        if not isinstance(predicate, dict):
            raise ValueError("the predicate is no JSON object")
        found = Statement(digest["sha256"], predicate_type, predicate)
        if found.payload() != payload:
            raise ValueError("its payload is not in the canonical form that is signed")
    except (ValueError, RecursionError) as error:
        raise unfit(name, str(error)) from error
    return found
