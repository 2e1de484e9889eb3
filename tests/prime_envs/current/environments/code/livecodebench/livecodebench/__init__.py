"""A stand-in for livecodebench: its name, its options, tiny programs of our own. No benchmark."""

from livecodebench.taskset import LiveCodeBenchTaskset

__all__ = ["LiveCodeBenchTaskset"]
