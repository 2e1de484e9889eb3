"""Records a job of so many rows, in a process whose memory is measured."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from suite_rows import PRIMARY, job_of, row, suite

from assay.digest import sha256_bytes
from assay.record.dataset_result import JobRecord
from assay.record.sample import Sample
from assay.record.suite_results import write_results


def rows(count: int) -> Iterator[Sample]:
    """Rows that differ in all that is counted."""
    first = row(0)
    for number in range(count):
        digest = sha256_bytes(b"%d" % number)
        yield first.model_copy(
            update={
                "task_key": digest,
                "cluster": digest,
                "answer_digest": digest,
                "output_digest": digest,
                "reward": number / count,
                "rewards": {PRIMARY: number / count},
                "line": number + 1,
            }
        )


if __name__ == "__main__":
    many = int(sys.argv[1])
    asked = suite(retention="errors")
    with tempfile.TemporaryDirectory() as folder:
        (found,) = write_results(Path(folder), asked, [JobRecord(job_of(asked), many, rows(many))]).jobs
    assert (found.counts.completed, found.clusters, found.distinct_answers) == (many, many, many)
