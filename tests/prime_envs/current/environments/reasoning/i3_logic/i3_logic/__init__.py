"""A stand-in for i3-logic: its name, its options, small puzzles of our own. No benchmark."""

from i3_logic.taskset import I3LogicTaskset

__all__ = ["I3LogicTaskset"]
