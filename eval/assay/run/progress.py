"""What is known of a run while it is conducted, and its state on the disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from assay.plan import Plan
from assay.record.sample import TaskPlan
from assay.run.declared import Declared
from assay.run.identity import Identity
from assay.run.key import Key
from assay.run.route import Routed
from assay.run.state import Phase, State, save_state


@dataclass
class Progress:
    """What is known of a run so far; `conduct` alone changes it.

    Attributes:
        run: Its directory.
        plan: What it does.
        state: As last saved.
        tasks: What each entry asks.
        routed: How each entry's taskset finds its data.
        problems: Faults that fail the run.
        notes: Faults that do not.
        identity: Who the server was first.
        key: Its key.
        declared: What the operator says of it.
        seconds: Wall time by phase.
    """

    run: Path
    plan: Plan
    state: State
    tasks: dict[str, TaskPlan] = field(default_factory=dict)
    routed: dict[str, Routed] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    identity: Identity | None = None
    key: Key | None = None
    declared: Declared = field(default_factory=Declared)
    seconds: dict[str, float] = field(default_factory=dict)

    def save(
        self, phase: Phase | None = None, error: str | None = None, error_exit_code: int | None = None
    ) -> None:
        """Write the state, in a new phase if one is given, with what ended the run if something did."""
        changed = {"phase": phase or self.state.phase, "error": error or self.state.error}
        self.state = self.state.model_copy(update={**changed, "error_exit_code": error_exit_code})
        save_state(self.run, self.state)

    def entry(self, name: str, **changed: object) -> None:
        """Change one entry's state and write it."""
        entries = tuple(
            entry.model_copy(update=changed) if entry.name == name else entry for entry in self.state.entries
        )
        self.state = self.state.model_copy(update={"entries": entries})
        save_state(self.run, self.state)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the block's wall time to a phase."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + time.monotonic() - begin, 3)
