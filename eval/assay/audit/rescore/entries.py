"""An entry of a profile's run: its answers scored again as the evaluator's dialect has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from assay.audit.case import Case
from assay.audit.check import Check
from assay.audit.rescore import episodes, results
from assay.errors import ConfigurationError
from assay.plan import EntryPlan
from assay.planning import launch_texts, require_evaluator
from assay.profile import choose_entries, find_profile
from assay.run.tasks import require_taskset

SCORERS: Mapping[str, Callable[[Case, EntryPlan, str], Check]] = {
    "vf-eval": episodes.check,
    "eval": episodes.check,
    "vf-eval-v0": results.check,
}


def check(case: Case, entry: EntryPlan, name: str) -> Check:
    """The entry's check.

    Raises:
        ConfigurationError: what the run was asked by is not this checkout's, and would name what runs here.
        PrerequisiteError: the environment, its data or its sandbox are not here.
        VerificationError: the record cannot be read.
    """
    require_own(case, entry)
    return SCORERS[case.plan.dialect](case, entry, name)


def require_own(case: Case, entry: EntryPlan) -> None:
    """Raise ConfigurationError unless taskset and launch files are this checkout's own.

    A native configuration names code: the taskset, and scorers that are plugged into it. A stranger's
    starts none of it here.
    """
    evaluator = require_evaluator(case.plan)
    profile = find_profile(case.plan.profile)
    (facts,) = choose_entries(profile, entry.name)
    if profile.evaluator != evaluator.name or launch_texts(profile, facts) != dict(entry.launch):
        commit = case.json(case.provenance / "worktree.json").get("commit")
        raise ConfigurationError(
            f"the launch files of {entry.name} are not this checkout's",
            "they name the code that scores, and only this checkout's is run",
            f"git checkout {commit}",
        )
    require_taskset(case.plan, entry, evaluator)
