"""A stand-in for aime26: its name, its options, short sums of our own. No benchmark."""

from aime26.taskset import AIME26Taskset

__all__ = ["AIME26Taskset"]
