"""Which Python the harness's programs run on, where the sandbox's base has another than an entry names.

The upstream profiles tell the harness `UV_PYTHON = "3.12"`, which the pinned base from a registry has. A base
from Debian packages has Debian's: uv would find none of the named version, and fetches none. So the run's
overrides name the interpreter of the image that is used, and the record tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay import sandbox
from assay.plan import EntryPlan, Plan

PATH = ("env", "agent", "harness", "env")
VARIABLE = "UV_PYTHON"


def override(plan: Plan, entry: EntryPlan) -> dict[str, Any]:
    """What the entry's configuration must be given over its own; empty when the image has what it names.

    Raises:
        AssayError: the plan's image is not there as recorded.
    """
    if plan.runtime != "docker" or of(plan.native(entry)) is None:
        return {}
    image = sandbox.check(plan.evaluator)
    return instead(plan, entry, image.python, image.python_version)


def instead(plan: Plan, entry: EntryPlan, python: str, python_version: str) -> dict[str, Any]:
    """The override that names an image's Python; empty where the entry names that one already, or none.

    Args:
        plan: The plan.
        entry: The entry.
        python: The image's interpreter.
        python_version: Major and minor version of it.
    """
    named = of(plan.native(entry))
    if plan.runtime != "docker" or named in (None, python, python_version):
        return {}
    found: dict[str, Any] = {VARIABLE: python}
    for key in reversed(PATH):
        found = {key: found}
    return found


def of(native: Mapping[str, Any]) -> str | None:
    """The Python that a native configuration tells its harness to use; None when it tells none."""
    found: Any = native
    for key in (*PATH, VARIABLE):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None
