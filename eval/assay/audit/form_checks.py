"""Is the directory only what a run writes, each file in the one form it is written in?

Whoever makes the manifest again decides what it lists. So a file that no run writes, a name that only looks
like another, a key that stands twice, and the same values in another order are looked for by themselves:
each lets two readers of the same signed bytes see two things.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from assay import dialect
from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.errors import VerificationError
from assay.files import is_partial, json_text
from assay.plan import LAUNCH_FILES, NAME, OwnServer
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import OUTSIDE, SCHEMA, STATEMENT, load_manifest, run_files
from assay.record.results import MARKDOWN, SAMPLES, SUMMARY
from assay.record.sample import TaskPlan
from assay.run.state import NAME as STATE

OWN = {NAME, STATE, "events.jsonl", "run.log", SAMPLES, SUMMARY, MARKDOWN}
FACTS = ("environment", "worktree", "declared", "sources", "sandbox", "seconds")
LAUNCH = {*LAUNCH_FILES, "command.json", "route.json", "overrides.json", "launch.toml"}


def form(case: Case) -> Check:
    """Every file is one that a run writes, under a plain name, and in the form in which it is written."""
    native = tuple(f"{entry.name}/" for entry in case.plan.entries)
    count, faults = scan(case.run, native, set(layout(case)), partial(_ordered, case))
    return judge("form", faults, f"{count} files, each under its name and in its form")


def scan(
    run: Path, native: tuple[str, ...], known: Collection[str], ordered: Callable[[str, Any], Any]
) -> tuple[int, list[str]]:
    """How many files a run has, and what is odd about their names and forms.

    Args:
        run: The run directory.
        native: What the names begin with that evaluators chose: there, only a key that stands twice is odd.
        known: Every other name that a run may write.
        ordered: The value of a JSON file of the run's own with its keys in the order they are written in.
    """
    faults = []
    links, paths = run_files(run)
    files = {path.relative_to(run).as_posix(): path for path in paths}
    for name in sorted({*links, *files}):
        if not (name.isascii() and name.isprintable()):
            faults.append(f"{name!a} is not a plain name: it may be taken for another")
        elif name.startswith(native):
            faults += [f"{name} {fault}" for fault in doubled(files[name])] if name in files else []
        elif name not in known or name in links:
            left = ", unless its write was killed: assay resume removes it" if is_partial(Path(name)) else ""
            faults.append(f"{name} is nothing that a run writes{left}")
        elif name.endswith(".json") and name != STATEMENT:
            faults += [f"{name} {fault}" for fault in rewritten(files[name], partial(ordered, name))]
        elif name.endswith(".jsonl"):
            faults += [f"{name} {fault}" for fault in doubled(files[name])]
    return len(files), faults


def layout(case: Case) -> Iterator[str]:
    """The files that a run of this plan may hold outside of its evaluator's own folders."""
    yield from OWN | OUTSIDE
    if isinstance(case.plan.server, OwnServer):
        yield "server.log"
    yield from (f"provenance/{name}.json" for name in FACTS)
    yield "provenance/inputs.before.json"
    yield from (f"provenance/pins/{name.removeprefix('file:')}" for name in case.before)
    written = LAUNCH | set(dialect.of(case.plan.dialect).files)
    for entry in case.plan.entries:
        yield f"provenance/inputs.after-{entry.name}.json"
        yield f"provenance/tasks/{entry.name}.json"
        yield from (f"provenance/server/{entry.name}.{when}.json" for when in ("before", "after"))
        for folder in {entry.name, *(part.folder for part in entry.parts)}:
            yield f"provenance/containers/{folder}.json"
            yield from (f"provenance/launch/{folder}/{name}" for name in written)


def rewritten(path: Path, ordered: Callable[[Any], Any]) -> Iterator[str]:
    """What is odd about the form of a JSON file of the run's own."""
    try:
        text = path.read_bytes().decode("utf-8")
        value = json.loads(text, object_pairs_hook=_once)
    except VerificationError as error:
        yield error.what
        return
    except (ValueError, RecursionError) as error:
        yield f"cannot be read: {error}"
        return
    if json_text(ordered(value)) != text:
        yield "is not in the form and order in which a run writes it"


def _ordered(case: Case, name: str, value: Any) -> Any:
    """The value with its keys in the order of its model, where its file has one; else as they stand."""
    if name == NAME:
        return case.plan.model_dump(mode="json")
    if name == STATE:
        return case.state.model_dump(mode="json")
    if name == MANIFEST:
        return sorted_manifest(case.run)
    if name in {f"provenance/tasks/{entry.name}.json" for entry in case.plan.entries}:
        return TaskPlan.model_validate(value).model_dump(mode="json")
    return value


def sorted_manifest(run: Path) -> dict[str, Any]:
    """The manifest in the order in which it is written."""
    return {"schema_version": SCHEMA, "files": dict(sorted(load_manifest(run).items()))}


def doubled(path: Path) -> Iterator[str]:
    """Where a record of the evaluator's has a key twice, of which each reader takes one."""
    if path.suffix not in (".json", ".jsonl"):
        return
    lines = path.read_bytes().split(b"\n") if path.suffix == ".jsonl" else [path.read_bytes()]
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                json.loads(line, object_pairs_hook=_once)
        except VerificationError as error:
            yield f"line {number}: {error.what}" if path.suffix == ".jsonl" else error.what
            return
        except (ValueError, RecursionError):
            return  # whoever reads this record says what is wrong with it


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        again = next(name for index, name in enumerate(names) if name in names[:index])
        raise VerificationError(f'the key "{again}" stands twice in one object')
    return value
