"""Who answered, and where did it run? The server's word is a claim; the sandbox is recorded in each trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.plan import OwnServer, Part
from assay.record.asked import sampling
from assay.record.episodes import TRACES, containers
from assay.run.declared import contradiction
from assay.run.identity import differences

WHEN = ("before", "after")


def server(case: Case) -> Check:
    """The server told the same of itself before and after each entry, and served the pinned model."""
    records = [case.server(entry.name, when) for entry in case.plan.entries for when in WHEN]
    faults = _changes(case, lambda record: {**record, "container": None})
    first = records[0].get("identity")
    if contradicted := contradiction(case.declared, first if isinstance(first, dict) else None):
        faults.append(contradicted)
    if not isinstance(first, dict):
        if case.summary.server is not None:
            faults.append("summary.json names a server that offered no identity")
        told = sorted(path for path, value in records[0].get("unverified", {}).items() if value is not None)
        said = f"it offers no identity; the same throughout, but verified by nobody: {', '.join(told)}"
        return Check("server", "FAIL" if faults else "UNKNOWN", tuple(faults) or (said,))
    if first.get("system_fingerprint") != case.summary.server:
        faults.append(
            f"summary.json says {case.summary.server}, the server {first.get('system_fingerprint')}"
        )
    if isinstance(case.plan.server, OwnServer):
        served = (first.get("model") or {}).get("file_sha256")
        frozen = case.before.get(f"model:{case.plan.server.model}")
        if served != frozen:
            faults.append(f"the server claims the model {served}, frozen was {frozen}")
    return judge("server", faults, f"{case.summary.server}, the same throughout (claimed by the server)")


def container(case: Case) -> Check:
    """The server ran in one container, the same before and after each entry, which was not restarted."""
    faults = _changes(case, lambda record: {"container": record.get("container")})
    first = case.server(case.plan.entries[0].name, "before")
    found = first.get("container")
    if isinstance(case.plan.server, OwnServer):
        if found is not None:
            faults.append("the run started its server itself, and the record has a container")
        return judge("container", faults, "none: the run started the server itself")
    if faults:
        return Check("container", "FAIL", tuple(faults))
    if isinstance(found, dict):
        said = f"{found['name']} ({found['id'][:12]}) of image {found['image_id']}, the same throughout"
        return Check("container", "PASS", (said,))
    return Check("container", "UNKNOWN", (f"in none that was seen: {first.get('container_search')}",))


def _changes(case: Case, part: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """What in a part of the server's records differs: within an entry, or from entry to entry."""
    faults: list[str] = []
    first = part(case.server(case.plan.entries[0].name, "before"))
    for entry in case.plan.entries:
        before, after = (part(case.server(entry.name, when)) for when in WHEN)
        faults += [f"the server changed during {entry.name}: {what}" for what in differences(before, after)]
        faults += [f"the server changed before {entry.name}: {what}" for what in differences(first, before)]
    return faults


def isolation(case: Case) -> Check:
    """Each rollout ran where the plan says, within the planned limits; whether the network was cut."""
    said = case.json(case.provenance / "environment.json")
    faults = [
        f"provenance/environment.json: {name} is {said.get(name)}, planned {planned}"
        for name, planned in (("runtime", case.plan.runtime), ("egress", case.plan.egress))
        if said.get(name) != planned
    ]
    for where, trace in _traces(case):
        config = _table(trace, "agent", "config", "runtime")
        if config.get("type") != case.plan.runtime:
            faults.append(f"{where}: ran on {config.get('type')}, planned {case.plan.runtime}")
        elif case.plan.runtime == "docker" and config.get("image") != case.plan.image:
            faults.append(f"{where}: ran in image {config.get('image')}, planned {case.plan.image}")
        elif case.plan.runtime == "docker" and config.get("allow") != []:
            faults.append(f"{where}: its network was open to {config.get('allow')}")
    if case.plan.runtime == "docker":
        image = _table(case.json(case.provenance / "sandbox.json"), "image")
        if image.get("image_id") != case.plan.image:
            faults.append(f"provenance/sandbox.json is of {image.get('image_id')}, planned {case.plan.image}")
        faults += _unbounded(case)
    if faults:
        return Check("isolation", "FAIL", tuple(faults))
    if case.plan.egress != "cut":
        return Check("isolation", "UNKNOWN", (f"runtime: {case.plan.runtime}; egress: {case.plan.egress}",))
    return Check("isolation", "PASS", (f"runtime: docker, image {case.plan.image}; egress: cut",))


def _unbounded(case: Case) -> list[str]:
    """Containers of rollouts that are not recorded as held to the planned limits."""
    limits = case.plan.docker.model_dump(mode="json")
    faults = []
    for entry in case.plan.entries:
        for part in entry.parts:
            name = f"provenance/containers/{part.folder}.json"
            record = case.json(case.run / name)
            if record.get("limits") != limits:
                faults.append(f"{name}: the limits are {record.get('limits')}, planned {limits}")
            held = {str(item["id"]): item["pids"] for item in record["containers"]}
            for wanted in containers(case.run / part.folder / TRACES):
                found = {pids for known, pids in held.items() if known.startswith(wanted)}
                if found != {case.plan.docker.pids}:
                    faults.append(f"{name}: container {wanted} is not held to its limit of processes")
    return faults


def requests(case: Case) -> Check:
    """Each model call went to the planned model, with the planned sampling and the rollout's seed."""
    faults = []
    calls = 0
    for entry in case.plan.entries:
        planned = sampling(case.plan.dialect, case.plan.native(entry))
        for part in entry.parts:
            wanted = planned if part.seed is None else {**planned, "seed": part.seed}
            for where, episode in case.episodes(part):
                for trace in episode.traces:
                    for call in trace.get("calls", []):
                        calls += 1
                        faults += [f"{where}: {fault}" for fault in _asked(case, call, wanted, part)]
    if not calls and case.plan.dialect == "vf-eval-v0":
        return Check(
            "requests", "UNKNOWN", ("this evaluator records no calls; see configuration for its settings",)
        )
    return judge("requests", faults, f"{calls} calls asked the planned model with the planned sampling")


def _asked(case: Case, call: Mapping[str, Any], wanted: Mapping[str, Any], part: Part) -> list[str]:
    faults = []
    if call.get("model") != case.plan.server.model:
        faults.append(f"asked {call.get('model')}, planned {case.plan.server.model}")
    sent = _table(call, "sampling")
    # What the evaluator does not list it may have sent all the same; the seed of a rollout it lists always.
    listed = [key for key in wanted if key in sent or (key == "seed" and part.seed is not None)]
    faults += [
        f"{key} was {sent.get(key)}, planned {wanted[key]}" for key in listed if sent.get(key) != wanted[key]
    ]
    return faults


def _traces(case: Case) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in case.plan.entries:
        for part in entry.parts:
            for where, episode in case.episodes(part):
                for trace in episode.traces:
                    yield where, trace


def _table(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for key in path:
        below = value.get(key)
        value = below if isinstance(below, Mapping) else {}
    return value
