"""Who vouches for the run's bytes, and is what he signed what the run's own records say?"""

from __future__ import annotations

from assay.audit.case import Recorded
from assay.audit.check import Check, judge
from assay.audit.record_checks import differences
from assay.record.manifest import STATEMENT
from assay.signing import dsse
from assay.signing.gather import statement_of
from assay.signing.predicate import PREDICATE_TYPE
from assay.signing.statement import parse
from assay.signing.verify import envelope_bytes, named_key, verify

UNSIGNED = "the run is not signed: nobody vouches for its bytes"


def signature(case: Recorded) -> Check:
    """The key that the auditor was given, and no other, has signed a statement about this manifest."""
    if case.key is not None:
        verified = verify(case.run, case.key.pem)
        return Check("signature", "PASS", (f"signed by {verified.key_id}, the key that was given",))
    named = named_key(case.run)
    if named is None:
        return Check("signature", "UNKNOWN", (UNSIGNED,))
    said = f"it says that {named} signed it, and no key was given to hold it against: --key PUB"
    return Check("signature", "UNKNOWN", (said,))


def statement(case: Recorded) -> Check:
    """The signed statement says, field by field, what can be made again from the run's own files."""
    if named_key(case.run) is None:
        return Check("statement", "UNKNOWN", ("the run has none",))
    signed = parse(dsse.read(envelope_bytes(case.run), STATEMENT).payload, PREDICATE_TYPE, STATEMENT)
    again = statement_of(case.run)
    faults = differences(dict(again.predicate), dict(signed.predicate), "predicate")
    if signed.manifest_sha256 != again.manifest_sha256:
        faults.insert(0, f"it is about {signed.manifest_sha256}, manifest.json has {again.manifest_sha256}")
    return judge("statement", faults, "made again from the run's files: the same in every field")
