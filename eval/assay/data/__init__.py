"""Pinned task data: fetched from where their publishers keep them, by digest, and verified before each use.

`fetch` is what `assay data` does; a run only verifies. What is fetched lies in a cache of this checkout's
own, laid out as the hub's libraries expect (`assay.data.store`).
"""

from assay.data.pins import Dataset, Unpinned, choose, command, datasets, unpinned
from assay.data.verify import Place, Snapshot, digests_here, find, frozen, frozen_names, verify

__all__ = [
    "Dataset",
    "Place",
    "Snapshot",
    "Unpinned",
    "choose",
    "command",
    "datasets",
    "digests_here",
    "find",
    "frozen",
    "frozen_names",
    "unpinned",
    "verify",
]
