"""Are the environments that asked and scored the ones that this machine makes of the same locks?

What a lock pins is the same everywhere; what is installed from it is for one Python and one machine, so a
difference is no fault of the run. Equal digests say that every installed file is the same.
"""

from __future__ import annotations

from assay import setup
from assay.audit.case import Recorded
from assay.audit.check import Check, judge
from assay.audit.pinned_checks import told
from assay.errors import AssayError
from assay.run.freeze import names

NAME = "environments"


def environments(case: Recorded) -> Check:
    """Every installed file of each frozen environment is the same as in this checkout's own."""
    frozen = names(case.before, "environment")
    if not frozen:
        return judge(NAME, ["no environment was frozen"], "")
    faults, absent, same = [], [], []
    for name in frozen:
        made = setup.ENVIRONMENTS.get(name)
        if made is None:
            faults.append(f"environment:{name} was frozen, and no evaluator is called so")
            continue
        try:
            here = case.here().get(f"environment:{name}") or setup.check(made).digest
        except AssayError as error:
            absent.append(f"{name}: {error.what}: eval/scripts/setup {name}")
            continue
        if here == case.before[f"environment:{name}"]:
            same.append(f"{name}: every installed file as here")
        else:
            absent.append(f"{name}: made of the same locks, yet its files are others than here")
    return told(NAME, faults, absent, tuple(same))
