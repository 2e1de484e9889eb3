"""Who answered, and where did it run? The server's word is a claim; the sandbox is recorded in each trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.plan import OwnServer


def server(case: Case) -> Check:
    """The server claimed the same identity before and after each entry, and served the pinned model."""
    faults: list[str] = []
    claims = []
    for entry in case.plan.entries:
        before, after = (case.server(entry.name, when) for when in ("before", "after"))
        if before != after:
            faults.append(f"the server changed during {entry.name}")
        claims += [before, after]
    identities = [claim.get("identity") for claim in claims]
    if any(identity != identities[0] for identity in identities):
        faults.append("the entries were not answered by one server")
    first = identities[0] if identities else None
    if not isinstance(first, dict):
        if case.summary.server is not None:
            faults.append("summary.json names a server that offered no identity")
        return Check("server", "FAIL" if faults else "UNKNOWN", tuple(faults) or ("it offers no identity",))
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
