"""A stand-in for mmlu-pro: its name, its options, easy choices of our own. No benchmark."""

from mmlu_pro.taskset import MMLUProTaskset

__all__ = ["MMLUProTaskset"]
