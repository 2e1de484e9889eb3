"""The errors a person can meet: each says what is wrong, why, and what to type next.

One small tree, one exit code a branch; `assay.cli` prints them in one place. Exit codes are part of the
command's contract (docs/architecture.md): 2 bad configuration, 3 missing prerequisite, 4 partial,
5 failed or not verified, 6 cancelled.
"""

from __future__ import annotations


class AssayError(Exception):
    """Something a person can act on.

    Args:
        what: What is wrong, in one sentence, naming the thing.
        why: The reason, as far as it is known; empty when `what` says it all.
        next: The command to type or the thing to change; empty when there is none.
    """

    exit_code = 5

    def __init__(self, what: str, why: str = "", next: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next = next

    def __str__(self) -> str:
        """All three parts in one line, for logs and tests."""
        return "; ".join(part for part in (self.what, self.why, self.next) if part)


class ConfigurationError(AssayError):
    """A name, file, option or key that the user gave cannot be used (exit 2)."""

    exit_code = 2


class PrerequisiteError(AssayError):
    """A tool, environment, data set, image or endpoint is missing or incompatible (exit 3)."""

    exit_code = 3


class PartialError(AssayError):
    """Some rows errored, or a budget was reached, before the work was whole (exit 4)."""

    exit_code = 4


class VerificationError(AssayError):
    """A digest, a frozen input or a record is not what it must be (exit 5)."""

    exit_code = 5


class RunError(AssayError):
    """A run produced nothing usable, or could not be recorded (exit 5)."""

    exit_code = 5


class CancelledError(AssayError):
    """The user or a signal ended the work; what had finished is kept (exit 6)."""

    exit_code = 6
