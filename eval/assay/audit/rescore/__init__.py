"""Saved answers scored once more by the scorers that upstream has for them, and each reward compared."""

from assay.audit.rescore.again import rescore

__all__ = ["rescore"]
