"""Verifying a run directory offline."""
