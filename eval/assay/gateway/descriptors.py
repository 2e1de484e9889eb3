"""Open files: each request in flight is a connection to the child and one to the target."""

from __future__ import annotations

import resource

from assay.errors import PrerequisiteError

BESIDE = 256  # what the coordinator itself has open: journals, logs, children's output
EACH = 2


def make_room(requests: int) -> None:
    """Let this process open as many files as so many requests in flight need.

    Raises:
        PrerequisiteError: the machine does not let it.
    """
    needed = BESIDE + EACH * requests
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise PrerequisiteError(
            f"{requests} requests in flight need {needed} open files, and this process may have {hard}",
            "each is a connection to the child and one to the target",
            f"lower max_concurrency, or begin from a shell with more: ulimit -n {needed}",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
