"""Getting ready for a suite: what is missing and may be set up is set up, as a profile's run does it.

What only the user can give (keys, task data) is asked for first, before minutes are spent.
"""

from __future__ import annotations

from collections.abc import Mapping

from assay import models
from assay.backends import registry
from assay.run import route
from assay.suite.check import check_runtime
from assay.suite.key import target_key
from assay.suite.suite import Suite


def prepare(suite: Suite, environ: Mapping[str, str]) -> None:
    """Set up what the suite needs, then look for all of it.

    Args:
        suite: The suite, checked.
        environ: This process's variables.

    Raises:
        AssayError: something is not there and cannot be set up, or is there and not as it is locked.
    """
    for target in suite.targets:
        target_key(target, environ)
    jobs = [(registry.find(job.backend), job, suite.target(job)) for job in suite.jobs]
    route.require(dict.fromkeys(name for backend, job, _ in jobs for name in backend.data(job)))
    for target in suite.targets:
        if target.serve is not None:
            models.fetch(target.serve)
    for backend, job, target in jobs:
        backend.prepare(job, target)
    check_runtime(suite, environ)
