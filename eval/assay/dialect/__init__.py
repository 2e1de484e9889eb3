"""How each evaluator's command is spoken to; the rest of the core speaks of entries, tasks and rollouts.

`assay.dialect.of(name)` gives the one of an evaluator's `dialect`. A dialect knows what the native
configuration calls things, how a run's own values are laid over it, and the words of the command. What the
records mean is `assay.record`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.dialect.base import Dialect, Launch
from assay.dialect.flat import Flat
from assay.dialect.layered import Layered
from assay.evaluator import Dialect as DialectName

__all__ = ["Dialect", "Launch", "of"]

DIALECTS: Mapping[DialectName, Dialect] = {
    "vf-eval": Layered(count=("select", "limit")),
    "eval": Layered(count=("num_tasks",)),
    "vf-eval-v0": Flat(),
}


def of(name: DialectName) -> Dialect:
    """The dialect of that name."""
    return DIALECTS[name]
