"""A stand-in for aime25: its name, its options, short sums of our own. No benchmark."""

from aime25.taskset import AIME25Taskset

__all__ = ["AIME25Taskset"]
