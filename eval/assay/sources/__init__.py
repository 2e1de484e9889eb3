"""Pinned upstream sources: checked out by commit into the checkout, verified, never reset or vendored.

`fetch_all` makes what is missing and verifies what is there; `verify` looks at every byte of one source. It
needs nothing but the standard library and Git, since a set-up uses it before any environment exists.
"""

from assay.sources.checkout import Checkout, verify
from assay.sources.fetch import fetch_all
from assay.sources.git import guarded
from assay.sources.lock import ProgramDigest, Source, SourceLock, load_lock
from assay.sources.mirror import Mirror, read_mirror

__all__ = [
    "Checkout",
    "Mirror",
    "ProgramDigest",
    "Source",
    "SourceLock",
    "fetch_all",
    "guarded",
    "load_lock",
    "read_mirror",
    "verify",
]
