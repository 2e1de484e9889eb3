"""The record of a run: samples, counts, intervals, summary, manifest. Derived from native records only."""
