"""Assay: did a change to an inference server keep the model's intelligence, and is it faster?

The package opens no socket and imports no third-party module by itself, so that the bootstrap can use
its foundation (`errors`, `paths`, `digest`, `files`, `process`, `console`) before any environment exists.
"""

__version__ = "0.1.0"
