"""Signed statements of runs: made from the run directory alone, verified without a socket."""
