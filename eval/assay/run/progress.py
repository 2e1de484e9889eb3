"""What is known of a run while it is conducted, and its state on the disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from assay.coordinator.events import Events
from assay.coordinator.redact import Secrets
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
        secrets: What must not stand in an event.
        events: What happened, while it is open.
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
    secrets: Secrets = field(default_factory=Secrets)
    events: Events | None = None

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
    def telling(self) -> Iterator[None]:
        """Keep the run's events open while the block runs."""
        # A full disk is noticed by the next state that is saved, which every event stands beside.
        self.events = Events(self.run, self.secrets, lambda error: None)
        try:
            yield
        finally:
            self.close()

    def tell(self, kind: str, fields: Mapping[str, object]) -> None:
        """Write an event, while they are open."""
        if self.events is not None:
            self.events(kind, fields)

    def close(self) -> None:
        """Close the events; a second call does nothing."""
        if self.events is not None:
            self.events.close()
            self.events = None

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the block's wall time to a phase."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + time.monotonic() - begin, 3)
