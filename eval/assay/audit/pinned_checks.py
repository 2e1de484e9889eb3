"""Were sources and task data the locks' own, and did each taskset find its data the declared way?

What the run's copies of the locks say is compared first, and needs nothing but the run. Where a lock cannot
say it alone (a tree's digest follows from its commit, and SHA-256 does not follow from Git's hash of a file),
this checkout's own verified copy is asked; without one the answer is UNKNOWN and not PASS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay import data, sources
from assay.audit.case import Case, Recorded
from assay.audit.check import Check, Verdict
from assay.errors import AssayError, PrerequisiteError
from assay.evaluator import SNAPSHOT, Evaluator, Route, load_evaluator
from assay.plan import Part
from assay.run.freeze import names
from assay.run.provenance import SOURCES

HUB_VARIABLE = "HF_HUB_CACHE"
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def source_trees(case: Case) -> Check:
    """The frozen tree of each pinned source is the one of the lock's revision."""
    evaluator = load_evaluator(case.plan.evaluator)
    if not evaluator.sources:
        return Check("sources", "PASS", ("the evaluator takes nothing from pinned sources",))
    faults: list[str] = []
    absent: list[str] = []
    recorded = case.json(case.provenance / SOURCES)
    lock = case.pin("prime-envs.lock")
    pinned = {} if lock is None else sources.load_lock(lock).sources
    for name in evaluator.sources:
        frozen = case.before.get(f"source:{name}")
        said = recorded.get(name)
        if not isinstance(said, dict) or name not in pinned:
            faults.append(f"{name} stands in no record of sources, or in no lock")
            continue
        for what, found, wanted in (
            ("revision", said.get("revision"), pinned[name].revision),
            ("repository", said.get("repository"), pinned[name].repository),
            ("digest", said.get("digest"), frozen),
        ):
            if found != wanted:
                faults.append(f"{name}: {SOURCES} says {what} {found}, pinned is {wanted}")
        try:
            here = sources.verify(name)
        except PrerequisiteError as error:
            absent.append(f"{error.what}: {error.next}")
            continue
        except AssayError as error:
            absent.append(f"{name} of this checkout cannot be used: {error.what}")
            continue
        if here.revision != pinned[name].revision:
            absent.append(f"{name} of this checkout is pinned at {here.revision}")
        elif here.digest != frozen:
            faults.append(f"{name}: frozen was {frozen}, revision {here.revision} has {here.digest}")
    sound = tuple(f"{name} at {pinned[name].revision}" for name in evaluator.sources if name in pinned)
    return told("sources", faults, absent, sound)


def task_data(case: Case) -> Check:
    """The frozen task data are the ones that the lock pins."""
    evaluator = load_evaluator(case.plan.evaluator)
    routes = _routes(case, evaluator)
    if not routes:
        kept = names(case.before, "data")
        faults = [f"data:{name} was frozen, but no taskset reads it" for name in kept]
        return told("data", faults, [], ("no taskset reads pinned data",))
    faults, absent = data_faults(case, sorted({route.data for route in routes}))
    count = len(names(case.before, "data"))
    return told("data", faults, absent, (f"{count} file(s) of task data as datasets.lock pins them",))


def data_faults(case: Recorded, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """What of the frozen data sets is not as the run's own lock pins it, and what nobody here can tell."""
    lock = case.pin("datasets.lock")
    known = {} if lock is None else data.datasets(lock)
    faults: list[str] = []
    absent: list[str] = []
    for name in wanted:
        if name not in known:
            faults.append(f"data {name} is in no lock of the run")
            continue
        frozen = {
            path.removeprefix(f"{name}/"): case.before[f"data:{path}"]
            for path in names(case.before, "data")
            if path.startswith(f"{name}/")
        }
        pinned = {file.path: file for file in known[name].files}
        faults += [f"data:{name}/{path} is not pinned" for path in sorted(frozen.keys() - pinned.keys())]
        faults += [f"data:{name}/{path} was not frozen" for path in sorted(pinned.keys() - frozen.keys())]
        shared = sorted(frozen.keys() & pinned.keys())
        faults += [
            f"data:{name}/{path} was {frozen[path]}, pinned {pinned[path].sha256}"
            for path in shared
            if pinned[path].sha256 not in (None, frozen[path])
        ]
        # The hub names small files by Git's hash alone: what SHA-256 belongs to it, only the file can tell.
        by_git = [path for path in shared if pinned[path].sha256 is None]
        if by_git:
            try:
                here = data.digests_here(known[name], by_git)
            except AssayError as error:
                absent.append(f"{len(by_git)} file(s) of {name} are pinned by Git's hash: {error.what}")
                continue
            faults += [
                f"data:{name}/{path} was {frozen[path]}, the pinned file has {here[path]}"
                for path in by_git
                if here[path] != frozen[path]
            ]
    return faults, absent


def routed(case: Case) -> Check:
    """Each taskset was led to its data as the evaluator declares, offline, from a recorded directory."""
    evaluator = load_evaluator(case.plan.evaluator)
    lock = case.pin("datasets.lock")
    known = {} if lock is None else data.datasets(lock)
    faults: list[str] = []
    for entry in case.plan.entries:
        route = evaluator.route_of(case.plan.taskset(entry))
        dataset = None if route is None else known.get(route.data)
        if route is not None and dataset is None:
            faults.append(f"{entry.name}: its data {route.data} are in no lock of the run")
            continue
        for part in entry.parts:
            faults += _where(case, part)
            faults += _led(case, part, route, dataset)
    count = sum(len(entry.parts) for entry in case.plan.entries)
    return told("routes", faults, [], (f"{count} invocation(s), offline, data by the declared routes",))


def _where(case: Case, part: Part) -> list[str]:
    """What is odd about where an invocation ran, and whether it could have asked a hub."""
    name = f"provenance/launch/{part.folder}/command.json"
    command = case.launch(part, "command.json")
    faults = [
        f"{name}: {variable} is {value!r}, so it was not offline"
        for variable in OFFLINE
        if (value := value_at(command, "environment", variable)) != "1"
    ]
    directory = command.get("working_directory")
    if not isinstance(directory, str) or not directory.startswith("/"):
        faults.append(f"{name}: the working directory is {directory!r}")
    return faults


def _led(case: Case, part: Part, route: Route | None, dataset: data.Dataset | None) -> list[str]:
    """What of an invocation's route is not as the evaluator declares it."""
    name = f"provenance/launch/{part.folder}/route.json"
    said, command = case.launch(part, "route.json"), case.launch(part, "command.json")
    over = case.launch(part, "overrides.json")
    folder = "" if dataset is None else str(dataset.folder)
    patterns = dict(route.set) if route else {}
    variables = dict(route.environment) if route else {}
    links = {route.link: SNAPSHOT} if route and route.link else {}
    link = said.get("link")
    named = {link.get("name"): link.get("target")} if isinstance(link, dict) else {}
    environment = said.get("environment")
    environment = dict(environment) if isinstance(environment, dict) else {}
    hub = environment.pop(HUB_VARIABLE, None)
    faults = []
    if (said.get("data"), said.get("revision")) != (route and route.data, dataset and dataset.revision):
        faults.append(f"data {said.get('data')} at {said.get('revision')}, which is not what is routed there")
    if (hub is not None) != bool(route and route.hub) or (hub is not None and not str(hub).endswith("/hub")):
        faults.append(f"{HUB_VARIABLE} is {hub!r}")
    for what, found, declared in (
        ("option", leaves(said.get("overrides")), patterns),
        ("variable", environment, variables),
        ("link", named, links),
    ):
        faults += [f"{what} {key} is not declared" for key in found.keys() - declared.keys()]
        faults += [
            f"{what} {key} is {found.get(key)!r}, declared {pattern}"
            for key, pattern in declared.items()
            if not fits(found.get(key), pattern, folder)
        ]
    given = {dotted: value_at(over, *dotted.split(".")) for dotted in patterns}
    given |= {variable: value_at(command, "environment", variable) for variable in variables}
    said_so = leaves(said.get("overrides")) | environment
    faults += [
        f"{key} was {value!r}, routed {said_so.get(key)!r}"
        for key, value in given.items()
        if value != said_so.get(key)
    ]
    return [f"{name}: {fault}" for fault in faults]


def fits(value: object, pattern: str, folder: str) -> bool:
    """Whether a recorded value is the declared one; where the data's folder lay is the machine's."""
    before, marked, after = pattern.partition(SNAPSHOT)
    if not isinstance(value, str) or not marked:
        return value == pattern
    inner = value[len(before) : len(value) - len(after)]
    return value == f"{before}{inner}{after}" and inner.endswith(f"/{folder}")


def leaves(table: object, path: str = "") -> dict[str, Any]:
    """A nested table's values by their dotted keys."""
    if not isinstance(table, Mapping):
        return {path: table} if path else {}
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= leaves(value, f"{path}.{key}" if path else str(key))
    return found


def value_at(table: object, *path: str) -> Any:
    """What stands at a path of keys, None where it leads nowhere."""
    for key in path:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table


def _routes(case: Case, evaluator: Evaluator) -> list[Route]:
    found = (evaluator.route_of(case.plan.taskset(entry)) for entry in case.plan.entries)
    return [route for route in found if route is not None]


def told(name: str, faults: list[str], absent: list[str], sound: tuple[str, ...]) -> Check:
    """FAIL with the faults; else UNKNOWN with what cannot be told here; else PASS."""
    verdict: Verdict = "FAIL" if faults else "UNKNOWN" if absent else "PASS"
    return Check(name, verdict, tuple(faults) or tuple(absent) or sound)
