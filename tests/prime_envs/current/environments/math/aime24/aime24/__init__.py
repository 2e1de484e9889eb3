"""A stand-in for aime24: its name, its options, short sums of our own. No benchmark."""

from aime24.taskset import AIME24Taskset

__all__ = ["AIME24Taskset"]
