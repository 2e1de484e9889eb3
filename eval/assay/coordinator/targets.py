"""The targets of a suite while it runs: their keys, the servers that the run starts itself, and who answers.

Each target is identified before the first request, again before and after each job, and once more before a
resume goes on. A pool's endpoints must be one model: those that claim a fingerprint must claim the same one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import models
from assay.coordinator.redact import Secrets
from assay.errors import AssayError, PrerequisiteError, VerificationError
from assay.files import read_json, write_json_atomic
from assay.plan import OwnServer
from assay.run import provenance
from assay.run.endpoint import Endpoint, probe
from assay.run.identity import Identity, differences
from assay.run.key import Key
from assay.run.native import Scratch
from assay.run.serving import serve
from assay.suite.key import target_key
from assay.suite.suite import Suite
from assay.suite.target import Target

FIRST = "first"
STARTED = frozenset({"started_at", "restart_count", "state"})


@dataclass(frozen=True)
class Reached:
    """A target that answered.

    Attributes:
        endpoints: In the order of the suite's file.
        identities: Who each said it was, first.
    """

    endpoints: tuple[Endpoint, ...]
    identities: tuple[Identity, ...]

    @property
    def fingerprint(self) -> str | None:
        """What the target claims to be; None where it offers no identity."""
        return next((each.fingerprint for each in self.identities if each.fingerprint), None)


class Targets:
    """All targets of a suite.

    Args:
        suite: The suite.
        run: The run directory.
        scratch: The run's private folder.
        secrets: Where keys are noted before anything is written.
    """

    def __init__(self, suite: Suite, run: Path, scratch: Scratch, secrets: Secrets) -> None:
        self._suite = suite
        self._run = run
        self._scratch = scratch
        self._secrets = secrets
        self._stack = ExitStack()
        self.logs: list[Path] = []
        self.reached: dict[str, Reached] = {}

    def start(self, number: int, cancelled: Callable[[], bool]) -> None:
        """Start what the run serves itself, and ask every target who it is. Servers live until `end`.

        Args:
            number: Of this attempt of the run, for the names of server logs.
            cancelled: Whether to give up.

        Raises:
            AssayError: a key is missing, a server does not start, or a target does not answer as it must.
        """
        for target in self._suite.targets:
            if target.protocol == "none":
                continue
            endpoints = self._endpoints(target, number, cancelled)
            for endpoint in endpoints:
                self._secrets.add(endpoint.key)
            identities = tuple(probe(endpoint) for endpoint in endpoints)
            claimed = {each.fingerprint for each in identities if each.fingerprint}
            if len(claimed) > 1:
                raise PrerequisiteError(
                    f'the endpoints of target "{target.name}" are not one model',
                    f"they claim the fingerprints {', '.join(sorted(claimed))}",
                    "name only endpoints of the same model, or make them two targets",
                )
            self.reached[target.name] = Reached(endpoints, identities)

    def _endpoints(self, target: Target, number: int, cancelled: Callable[[], bool]) -> tuple[Endpoint, ...]:
        if target.serve is None:
            key = target_key(target, os.environ)
            return tuple(Endpoint(url, target.model, key) for url in target.base_url)
        scratch = Scratch(self._scratch.folder(f"serve-{target.name}"))
        log = self._run / "servers" / f"{target.name}.{number}.log"
        log.parent.mkdir(exist_ok=True)
        self.logs.append(log)
        own = OwnServer(model=target.serve, slots=target.max_concurrency)
        model = models.verify(target.serve)
        return (self._stack.enter_context(serve(own, model, scratch, log, cancelled)),)

    def end(self) -> None:
        """Stop the servers that the run started itself."""
        self._stack.close()

    def forget_logs(self) -> None:
        """Remove the logs of the servers that were started."""
        for log in self.logs:
            log.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                log.parent.rmdir()

    def known_keys(self) -> list[Key]:
        """The keys of all endpoints."""
        return [e.key for reached in self.reached.values() for e in reached.endpoints if e.key is not None]

    def record_first(self) -> None:
        """Write who the targets were when the run began, and what the operator says of them."""
        folder = provenance.folder(self._run) / "server"
        folder.mkdir(exist_ok=True)
        for name, reached in self.reached.items():
            write_json_atomic(folder / f"{FIRST}.{name}.json", _described(reached.identities))
        declared = {target.name: dict(target.provenance) for target in self._suite.targets}
        write_json_atomic(provenance.folder(self._run) / provenance.DECLARED, declared)

    def differ_from_first(self) -> list[str]:
        """How the targets differ from those that the run began with, each with its dotted name.

        Raises:
            VerificationError: what was recorded of them cannot be read.
        """
        found = []
        for name, reached in self.reached.items():
            path = self._run / provenance.FOLDER / "server" / f"{FIRST}.{name}.json"
            found += compared(
                f"server.{name}", same_start(_load(path)), same_start(_described(reached.identities))
            )
        return found

    def look_again(self, target: Target, job: str, attempt: int, when: str) -> tuple[list[str], bool]:
        """Ask a target who it is, record it, and say how it differs from the one that the run began with.

        Args:
            target: The target.
            job: The job.
            attempt: Of the job.
            when: "before" or "after" it.

        Returns:
            What fails the job, empty when it is the same target; and whether it answered as another one, so
            that what it answered meanwhile is nobody's.
        """
        if target.protocol == "none":
            return [], False
        reached = self.reached[target.name]
        try:
            found = _described(tuple(probe(endpoint) for endpoint in reached.endpoints))
        except AssayError as error:
            return [f'the target "{target.name}" cannot be identified any more: {error}'], False
        folder = provenance.folder(self._run) / "server"
        write_json_atomic(folder / f"{job}.{attempt}.{when}.json", found)
        changed = compared(f"server.{target.name}", _described(reached.identities), found)
        begun = f'the target "{target.name}" is not the one that the run began with'
        return [f"{begun}: {what}" for what in changed], bool(changed)


def _described(identities: Sequence[Identity]) -> dict[str, Any]:
    return {"endpoints": [identity.describe() for identity in identities]}


def same_start(described: Mapping[str, Any]) -> dict[str, Any]:
    """A target's record without when its containers were started, which a pause of the run may change."""
    return {
        "endpoints": [
            {**each, "container": {name: value for name, value in container.items() if name not in STARTED}}
            if isinstance(container := each.get("container"), dict)
            else each
            for each in described["endpoints"]
        ]
    }


def compared(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """How two records of a target differ, each with its dotted name."""
    pairs = list(zip(before["endpoints"], after["endpoints"], strict=True))
    several = len(pairs) > 1
    return [
        f"{name}{f'[{index}]' if several else ''}.{what}"
        for index, (old, new) in enumerate(pairs)
        for what in differences(old, new)
    ]


def _load(path: Path) -> Mapping[str, Any]:
    try:
        value = read_json(path)
        if not isinstance(value, dict) or not isinstance(value.get("endpoints"), list):
            raise ValueError("it is no record of a target")
    except (OSError, ValueError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error), "start a new run") from error
    return value
