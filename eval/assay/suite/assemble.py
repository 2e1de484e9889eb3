"""From what a suite's file says to the suite: targets, jobs over their defaults, the list that was chosen.

Every fault of the file is told at once, also of those jobs that the chosen list leaves out: a file is valid
or it is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay import pinset
from assay.names import nearest
from assay.profile import merge
from assay.suite.document import BARE, inside
from assay.suite.faults import FaultyError, build, kind, unknown
from assay.suite.job import Job
from assay.suite.place import place_faults, placed
from assay.suite.suite import Running, Suite
from assay.suite.target import Table, Target

EVERYTHING = "all"
LIST = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
KEYS = ("description", "running", "target", "defaults", "job", "list")
# What a job says for itself alone, and never by default.
OWN = ("id", "dataset", "backend_args")
PLACEHOLDER = {"id": "x", "backend": "x", "dataset": "x", "target": "x"}


def assemble(value: Mapping[str, Any], name: str, chosen: str | None) -> Suite:
    """The suite that a document describes.

    Args:
        value: The document.
        name: The suite's.
        chosen: The list of jobs that is asked for; None for all.

    Raises:
        FaultyError: everything that is wrong with the document.
    """
    return _Assembly(value).suite(name, chosen)


class _Assembly:
    """A document's parts, and the faults that were found in them so far."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.faults = [
            f"{inside('', key)}: unknown key; {nearest(key, KEYS)}" for key in value if key not in KEYS
        ]
        self._value = value
        jobs = value.get("job")
        self._tables: Sequence[object] = jobs if isinstance(jobs, list) else []
        self._targets = self._read_targets()
        self._jobs = self._read_jobs(self._read_defaults())
        self._lists = self._read_lists()
        self._running = self._build(Running, value.get("running", {}), "running") or Running()
        self._description = value.get("description")
        if not isinstance(self._description, str) or not self._description.strip():
            self.faults.append("description: say in one sentence what the suite is")

    def suite(self, name: str, chosen: str | None) -> Suite:
        """The suite, or every fault."""
        if chosen is not None and chosen not in self._lists:
            self.faults.append(f'there is no list "{chosen}"; {nearest(chosen, [*self._lists, EVERYTHING])}')
        if self.faults:
            raise FaultyError(self.faults)
        jobs = [self._jobs[job] for job in (self._jobs if chosen is None else self._lists[chosen])]
        wanted = {job.target for job in jobs}
        return Suite(
            name=name if chosen is None else f"{name}.{chosen}",
            description=str(self._description),
            pins=pinset.current().name,
            running=self._running,
            targets=tuple(target for key, target in self._targets.items() if key in wanted and target),
            jobs=tuple(jobs),
        )

    def _build(self, model: type[Table], table: object, where: str) -> Any:
        """The table as a value; None where it has faults, which are kept."""
        try:
            return build(model, table, where)
        except FaultyError as faults:
            self.faults += faults.found
            return None

    def _table(self, key: str) -> Mapping[str, Any]:
        value = self._value.get(key, {})
        if isinstance(value, Mapping):
            return value
        self.faults.append(f"{key}: it is {kind(value)}, and tables belong there: [{key}.NAME]")
        return {}

    def _read_targets(self) -> dict[str, Target | None]:
        """Each target by its name; None for one that has faults, which jobs may name all the same."""
        found: dict[str, Target | None] = {}
        for name, table in self._table("target").items():
            where = inside("target", name)
            if isinstance(table, Mapping) and "name" in table:
                self.faults.append(f"{where}.name: the table's own name is the target's")
                table = {key: item for key, item in table.items() if key != "name"}
            if isinstance(table, Mapping):
                url = table.get("base_url")
                table = {"name": name, **table, **({"base_url": [url]} if isinstance(url, str) else {})}
            target = self._build(Target, table, where)
            found[name] = None if target is None else placed(target)
            if target is not None:
                self.faults += place_faults(target)
        return found

    def _read_defaults(self) -> Mapping[str, Any]:
        """What lies under each job; empty where it has faults of its own, so that they are told once."""
        defaults = self._table("defaults")
        known = sorted(Job.model_fields.keys() - set(OWN))
        wrong = [f"defaults.{key}: {unknown(key, Job, known)}" for key in defaults if key not in known]
        if wrong:
            self.faults += wrong
            return {}
        return defaults if self._build(Job, {**PLACEHOLDER, **defaults}, "defaults") is not None else {}

    def _read_jobs(self, defaults: Mapping[str, Any]) -> dict[str, Job]:
        if not self._tables:
            self.faults.append("job: there is none; each job is a table of its own: [[job]]")
        found: dict[str, Job] = {}
        for number, table in enumerate(self._tables, 1):
            said = table.get("id") if isinstance(table, Mapping) else None
            where = (
                inside("job", said) if isinstance(said, str) and BARE.fullmatch(said) else f"job[{number}]"
            )
            whole = merge(defaults, table) if isinstance(table, Mapping) else table
            job = self._build(Job, whole, where)
            if job is None:
                continue
            if job.id in found:
                self.faults.append(f"{where}: two jobs have this id")
            if job.target not in self._targets:
                told = nearest(job.target, self._targets)
                self.faults.append(f"{where}: target: there is no {job.target!r}; {told}")
            found[job.id] = job
        return found

    def _read_lists(self) -> dict[str, Sequence[str]]:
        found: dict[str, Sequence[str]] = {}
        for name, ids in self._table("list").items():
            where = inside("list", name)
            if not LIST.fullmatch(name):
                self.faults.append(f"{where}: a name is lower-case letters, digits, _ and -, at most 64")
            elif name == EVERYTHING:
                self.faults.append(f"{where}: this list is always there, and has every job")
            elif isinstance(ids, str) or not isinstance(ids, Sequence) or not ids:
                self.faults.append(f"{where}: it is not a list of jobs' ids")
            else:
                self.faults += self._list_faults(where, ids)
                found[name] = ids
        return found

    def _list_faults(self, where: str, ids: Sequence[Any]) -> list[str]:
        tables = [table for table in self._tables if isinstance(table, Mapping)]
        known = [table["id"] for table in tables if isinstance(table.get("id"), str)]
        faults = [
            f"{where}: there is no job {job!a}; {nearest(str(job), known)}" for job in ids if job not in known
        ]
        twice = {str(job) for number, job in enumerate(ids) if job in ids[:number]}
        return faults + [f"{where}: it names {job!a} twice" for job in sorted(twice)]
