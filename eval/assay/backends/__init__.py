"""Backends: how each evaluator is spoken to. One subprocess a job; no evaluator is imported."""
