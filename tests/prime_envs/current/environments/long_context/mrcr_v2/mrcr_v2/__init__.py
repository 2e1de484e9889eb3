"""A stand-in for mrcr-v2: its name, its options, short transcripts of our own. No benchmark."""

from mrcr_v2.taskset import MRCRTaskset

__all__ = ["MRCRTaskset"]
