"""`statement_of(run)`: what a run's statement says, made from the run directory and nothing else.

A run makes it when it ends, an auditor makes it again: field by field the two must be equal. What stands in
the manifest is named by its recorded digest, so that whoever checks the manifest has checked these too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.digest import sha256_bytes
from assay.errors import ConfigurationError, VerificationError
from assay.plan import NAME as RESOLVED
from assay.plan import load_plan
from assay.record.manifest import NAME as MANIFEST
from assay.record.results import load_summary
from assay.record.suite_results import load_suite_summary
from assay.signing.found import of_profile, of_suite
from assay.signing.materials import Materials
from assay.signing.predicate import (
    PREDICATE_TYPE,
    Checkout,
    Configuration,
    Endpoint,
    Environment,
    EvalRun,
    Server,
    Tool,
)
from assay.signing.reading import LARGEST_BYTES, Reading, read_regular
from assay.signing.statement import Statement
from assay.suite.suite import SCHEMA as SUITE_SCHEMA
from assay.suite.suite import Suite

SERVERS = "provenance/server/"
LONGEST_TEXT = 256
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def statement_of(run: Path) -> Statement:
    """The statement of a recorded run.

    Args:
        run: Its directory; it has its manifest.

    Raises:
        VerificationError: it is no recorded run, or cannot be read.
    """
    data = read_regular(run / MANIFEST, LARGEST_BYTES)
    if data is None:
        raise VerificationError(f"{run} has no {MANIFEST}", "", f"assay status {run}")
    return Statement(sha256_bytes(data), PREDICATE_TYPE, predicate_of(run).model_dump(mode="json"))


def predicate_of(run: Path) -> EvalRun:
    """What is said of a recorded run (raises as `statement_of` does)."""
    reading = Reading(run)
    checkout = _checkout(reading.json("provenance/worktree.json"))
    materials = Materials(reading, checkout)
    state = reading.json("state.json")
    resumed = state.get("resumed")
    common: dict[str, Any] = {
        "started_at": _text(state.get("started_at")),
        "ended_at": _text(state.get("ended_at")),
        "resumed": resumed if type(resumed) is int else 0,
        "checkout": checkout,
        "materials": materials.all(),
        "servers": tuple(_servers(reading)),
        "declared": reading.descriptor("provenance/declared.json"),
    }
    if reading.json(RESOLVED).get("schema_version") == SUITE_SCHEMA:
        return _of_suite(reading, materials, common)
    return _of_profile(reading, materials, common)


def _of_profile(reading: Reading, materials: Materials, common: Mapping[str, Any]) -> EvalRun:
    try:
        plan = load_plan(reading.run / RESOLVED)
    except ConfigurationError as error:
        raise VerificationError(error.what, error.why, error.next) from error
    summary = load_summary(reading.run)
    asked, scores = of_profile(reading, plan, summary)
    return EvalRun(
        kind="profile",
        name=plan.profile,
        pins=plan.pins,
        status=summary.status,
        problems=len(summary.problems),
        notes=len(summary.notes),
        configuration=_configuration(reading, plan.digest),
        environment=_environment(reading, materials, plan.runtime, plan.egress, plan.image),
        asked=asked,
        scores=scores,
        **common,
    )


def _of_suite(reading: Reading, materials: Materials, common: Mapping[str, Any]) -> EvalRun:
    try:
        suite = Suite.model_validate(reading.json(RESOLVED))
    except ValueError as error:
        raise VerificationError(
            f"{reading.run / RESOLVED} cannot be read", str(error).splitlines()[0]
        ) from error
    summary = load_suite_summary(reading.run)
    asked, scores = of_suite(reading, suite, summary)
    return EvalRun(
        kind="suite",
        name=suite.name,
        pins=suite.pins,
        status=summary.status,
        problems=len(summary.problems) + sum(len(job.problems) for job in summary.jobs),
        notes=len(summary.notes) + sum(len(job.notes) for job in summary.jobs),
        configuration=_configuration(reading, suite.digest),
        environment=_environment(reading, materials, None, None, None),
        asked=asked,
        scores=scores,
        **common,
    )


def _configuration(reading: Reading, digest: str) -> Configuration:
    record = reading.descriptor(RESOLVED)
    if record is None:
        raise VerificationError(f"{RESOLVED} does not stand in {MANIFEST}")
    return Configuration(record=record, sha256=digest)


def _checkout(said: Mapping[str, Any]) -> Checkout:
    commit, changed = _text(said.get("commit")), said.get("changed")
    return Checkout(
        commit=commit if commit and COMMIT.fullmatch(commit) else None,
        clean=said.get("clean") is True,
        changed=len(changed) if isinstance(changed, list) else None,
        diff_sha256=_text(said.get("diff_sha256")),
    )


def _environment(
    reading: Reading, materials: Materials, runtime: str | None, egress: str | None, image: str | None
) -> Environment:
    said = reading.json("provenance/environment.json")
    tools = said.get("tools")
    found = {"python": said.get("python"), **(tools if isinstance(tools, dict) else {})}
    return Environment(
        record=reading.descriptor("provenance/environment.json"),
        kind=_text(said.get("kind")),
        pinned=_at(said, "shell", "pinned") is True,
        assay=_text(said.get("assay")),
        system=_text(said.get("system")),
        machine=_text(said.get("machine")),
        processor=_text(said.get("processor")),
        processors=_number(said.get("processors")),
        memory_bytes=_number(said.get("memory_bytes")),
        runtime=runtime,
        egress=egress,
        image=image,
        tools={name: _tool(found[name]) for name in sorted(found)},
        evaluators=materials.evaluators(),
    )


def _tool(said: Any) -> Tool | None:
    if not isinstance(said, dict):
        return None
    return Tool(version=_text(said.get("version")), sha256=_text(said.get("sha256")))


def _servers(reading: Reading) -> Iterator[Server]:
    """Each look at a server: a profile's record is of one endpoint, a suite's of a target's several."""
    for record in reading.below(SERVERS):
        said = reading.json(record.name)
        endpoints = said.get("endpoints")
        each = endpoints if isinstance(endpoints, list) else [said]
        yield Server(record=record, endpoints=tuple(_endpoint(one) for one in each))


def _endpoint(said: Any) -> Endpoint:
    def text(*path: str) -> str | None:
        return _text(_at(said, *path))

    return Endpoint(
        fingerprint=text("identity", "system_fingerprint"),
        model=text("identity", "model", "name"),
        model_sha256=text("identity", "model", "file_sha256"),
        tokenizer_sha256=text("identity", "tokenizer", "sha256"),
        template_sha256=text("identity", "chat_template", "sha256"),
        engine_version=text("identity", "engine", "version"),
        engine_sha256=text("identity", "engine", "library_sha256"),
        isa=text("identity", "engine", "isa"),
        image_id=text("container", "image_id"),
    )


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= LONGEST_TEXT else None


def _number(value: Any) -> int | None:
    return value if type(value) is int else None
