"""`summary.json` of a suite's run: one result a job, and never a number over several of them.

It is computed from the rows alone and from what the coordinator knows of each job, row by row, so that a
million of them need no more memory than a hundred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from assay.record.dataset_result import DatasetResult, Facts
from assay.record.statistics import CONFIDENCE
from assay.record.summary import Outcome
from assay.suite.suite import Retention, Suite
from assay.suite.target import Protocol

SCHEMA: Literal["assay/suite-summary/v1"] = "assay/suite-summary/v1"
WORST: tuple[Outcome, ...] = ("cancelled", "failed", "partial", "done")
# What tells of the attempt, and not of what was found.
TOOK = frozenset({"effort", "artefacts", "retained"})


class TargetFacts(Facts):
    """Who was asked.

    Attributes:
        name: The target's.
        protocol: How it is spoken to; "none" where nobody is asked.
        model: The name that was asked for.
        endpoints: How many.
        server: The `system_fingerprint` that it claims; None where it offers no identity.
        declared: What the operator says of it.
    """

    name: str
    protocol: Protocol
    model: str
    endpoints: int
    server: str | None
    declared: Mapping[str, str]


class SuiteSummary(Facts):
    """The whole of `summary.json`.

    Attributes:
        schema_version: Of this form.
        suite: The suite's name.
        description: What it is.
        digest: Of what was asked, of whom and how.
        pins: The pin set that was in force.
        status: The worst of its jobs': cancelled, failed, partial, done.
        problems: Faults of the run itself; any fails it.
        notes: What else a reader should know.
        confidence: Of every interval.
        retention: What is kept of the evaluators' records.
        targets: Who was asked.
        jobs: One result a job, in the order of the suite.
        seconds: What the run took, pauses left out; no finding. None where nobody counted.
    """

    schema_version: Literal["assay/suite-summary/v1"] = SCHEMA
    suite: str
    description: str
    digest: str
    pins: str
    status: Outcome
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    confidence: float = CONFIDENCE
    retention: Retention
    targets: tuple[TargetFacts, ...]
    jobs: tuple[DatasetResult, ...]
    seconds: float | None

    def findings(self) -> dict[str, Any]:
        """What was found, without what it took: equal for a run that was disturbed and one that was not."""
        found = self.model_dump(mode="json", exclude={"seconds"})
        for job in found["jobs"]:
            for name in TOOK:
                del job[name]
        return found


def summary_of(
    suite: Suite,
    results: Sequence[DatasetResult],
    problems: Sequence[str] = (),
    notes: Sequence[str] = (),
    servers: Mapping[str, str | None] | None = None,
    seconds: float | None = None,
) -> SuiteSummary:
    """The summary over results.

    Args:
        suite: What was asked.
        results: One a job, in its order.
        problems: Faults of the run itself.
        notes: What else a reader should know.
        servers: The fingerprint that each target claims, by the target's name.
        seconds: What the run took.
    """
    said: set[Outcome] = {result.status for result in results}
    if problems:
        said.add("failed")
    return SuiteSummary(
        suite=suite.name,
        description=suite.description,
        digest=suite.digest,
        pins=suite.pins,
        status=next(status for status in WORST if status in said),
        problems=tuple(problems),
        notes=tuple(notes),
        retention=suite.running.retention,
        targets=tuple(
            TargetFacts(
                name=target.name,
                protocol=target.protocol,
                model=target.model or target.serve or "",
                endpoints=len(target.base_url),
                server=(servers or {}).get(target.name),
                declared=target.provenance,
            )
            for target in suite.targets
        ),
        jobs=tuple(results),
        seconds=seconds,
    )
