"""A stand-in for graphwalks: its name, its options, small graphs of our own. No benchmark."""

from graphwalks.taskset import GraphWalksTaskset

__all__ = ["GraphWalksTaskset"]
