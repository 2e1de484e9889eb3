"""Pinned upstream sources: checked out by commit into the checkout, verified, never reset or vendored."""

from assay.sources.lock import ProgramDigest, Source, SourceLock, load_lock

__all__ = ["ProgramDigest", "Source", "SourceLock", "load_lock"]
