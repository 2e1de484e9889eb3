"""Who answered, and where did it run? The server's word is a claim; the sandbox is recorded in each trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.plan import OwnServer
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
    """Each rollout ran where the plan says; whether the network was cut."""
    said = case.json(case.provenance / "environment.json")
    faults = [
        f"provenance/environment.json: {name} is {said.get(name)}, planned {planned}"
        for name, planned in (("runtime", case.plan.runtime), ("egress", case.plan.egress))
        if said.get(name) != planned
    ]
    for entry in case.plan.entries:
        for episode in case.episodes(entry.name):
            for trace in episode.value["traces"]:
                config = _table(trace, "agent", "config", "runtime")
                where = f"{entry.name}/traces.jsonl line {episode.line}"
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
    if faults:
        return Check("isolation", "FAIL", tuple(faults))
    if case.plan.egress != "cut":
        return Check("isolation", "UNKNOWN", (f"runtime: {case.plan.runtime}; egress: {case.plan.egress}",))
    return Check("isolation", "PASS", (f"runtime: docker, image {case.plan.image}; egress: cut",))


def requests(case: Case) -> Check:
    """Each model call went to the planned model, with the planned sampling."""
    faults = []
    for entry in case.plan.entries:
        asked = case.plan.native(entry).get("sampling", {})
        sampling = {key: value for key, value in asked.items() if key != "extra_body"}
        for episode in case.episodes(entry.name):
            for trace in episode.value["traces"]:
                for call in trace.get("calls", []):
                    where = f"{entry.name}/traces.jsonl line {episode.line}"
                    if call.get("model") != case.plan.server.model:
                        faults.append(f"{where}: asked {call.get('model')}, planned {case.plan.server.model}")
                    sent = call.get("sampling") or {}
                    differing = [key for key in sampling if key in sent and sent[key] != sampling[key]]
                    faults += [
                        f"{where}: {key} was {sent[key]}, planned {sampling[key]}" for key in differing
                    ]
    return judge("requests", faults, "every call asked the planned model with the planned sampling")


def _table(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for key in path:
        below = value.get(key)
        value = below if isinstance(below, Mapping) else {}
    return value
