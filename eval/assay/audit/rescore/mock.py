"""The mock scores by a rule that the job sets, and asks nobody what is right."""

from __future__ import annotations

import shutil
from pathlib import Path

from assay.backends import mock_child
from assay.backends.base import Context, arguments_of
from assay.backends.mock import Arguments, Mock, child_job
from assay.backends.mock_records import read_records
from assay.run.native import Scratch


def score(context: Context, folder: Path, scratch: Scratch) -> list[str]:
    """Write the records with what the rule says of each; what nobody answered is held against it too."""
    arguments: Arguments = arguments_of(Mock(), context.job)
    job = child_job(context, arguments)
    record = context.folder / mock_child.RECORDS
    faults = []
    with (folder / mock_child.RECORDS).open("wb") as file:
        for line, found in read_records(record):
            right = not mock_child.wrong(job, found.item, found.rollout)
            if not arguments.ask and found.text != mock_child.text(job, found.item, found.rollout):
                faults.append(
                    f"{record.relative_to(context.run).as_posix()} line {line}: not the rule's answer"
                )
            file.write(found.model_copy(update={"right": right}).model_dump_json().encode("utf-8") + b"\n")
    if (context.folder / mock_child.ENDED).is_file():
        shutil.copyfile(context.folder / mock_child.ENDED, folder / mock_child.ENDED)
    return faults
