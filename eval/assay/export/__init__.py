"""The small publishable form of a run: its provenance and figures, without a task's or an answer's text."""
