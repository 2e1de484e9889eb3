"""Was each child told what the suite says: model, lane, sampling, counts and data, and nothing else?

What a backend tells its child follows from the job, the target, the lane and folders alone, so it is computed
again and compared leaf by leaf. Where a folder lay is the machine's; what lies below it is compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay import pinset
from assay.audit.check import Check, judge
from assay.audit.pinned_checks import value_at
from assay.audit.record_checks import differences
from assay.audit.suite_case import SuiteCase
from assay.backends.base import Context, Lane
from assay.errors import AssayError
from assay.paths import ROOT
from assay.suite.job import Job

KEYS = {"mock": "ASSAY_MOCK_KEY", "evalscope": "ASSAY_API_KEY", "inspect": "ASSAY_API_KEY"}
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
SEARCH = "SERPAPI_API_KEY"
ADDRESS = re.compile(r"^https?://")


def launched(case: SuiteCase) -> Check:
    """Each attempt's child was told what follows from the suite, over its own lane."""
    faults: list[str] = []
    looked = 0
    for job in case.suite.jobs:
        attempts = list(case.attempts(job))
        if case.begun(job) and case.state.job(job.id).attempt not in attempts:
            faults.append(f"{job.id}: nobody recorded how its last attempt was started")
        for attempt in attempts:
            looked += 1
            try:
                faults += _attempt(case, job, attempt)
            except AssayError as error:
                faults.append(str(error))
    return judge("launch", faults, f"{looked} children told what follows from the suite, each over its lane")


def _attempt(case: SuiteCase, job: Job, attempt: int) -> list[str]:
    folder = case.provenance / "launch" / job.id
    name = f"provenance/launch/{job.id}/command.{attempt}.json"
    command = case.json(case.run / name)
    path = folder / f"attempt-{attempt}.json"
    told = case.json(path) if path.is_file() else None
    lane = _lane(case, job, command, told)
    faults = _variables(job, name, command, case.asks(job))
    with case.context(job, attempt, lane) as context:
        backend = case.backend(job)
        expected = backend.told(context)
        if (expected is None) != (told is None):
            faults.append(
                f"{path.relative_to(case.run).as_posix()} is {'not there' if told is None else 'odd'}"
            )
        elif expected is not None and told is not None:
            below = path.relative_to(case.run).as_posix()
            faults += differences(placed(case, context, expected, told), told, below)
        words = command.get("command")
        wanted = list(backend.words(context))
        found = [str(word) for word in words] if isinstance(words, list) else []
        # The interpreter is the machine's; its environment is a frozen input.
        faults += differences(placed(case, context, wanted[1:], found[1:]), found[1:], f"{name}: command")
    return faults


def _lane(
    case: SuiteCase, job: Job, command: Mapping[str, Any], told: Mapping[str, Any] | None
) -> Lane | None:
    """The lane that the record names, where the job asks."""
    if case.suite.target(job).protocol == "none":
        return None
    words = command.get("command")
    named = [str(word) for word in words] if isinstance(words, list) else []
    found = next((word for word in named if ADDRESS.match(word)), None)
    found = found or value_at(told, "base_url") or value_at(told, "task", "api_url")
    return case.lane(job, found)


def _variables(job: Job, name: str, command: Mapping[str, Any], asks: bool) -> list[str]:
    """What is odd about the variables: the names of secrets, and whether a hub could be asked."""
    given = command.get("secrets")
    found = {str(each) for each in given} if isinstance(given, list) else set()
    wanted = {KEYS[job.backend]} if asks and job.backend in KEYS else set()
    odd = found - wanted - ({SEARCH} if job.backend == "evalscope" else set())
    faults = [f"{name}: the secret {each} is none that its backend gives" for each in sorted(odd)]
    faults += [
        f"{name}: the key's variable {each} is not among its secrets" for each in sorted(wanted - found)
    ]
    online = job.backend_args.get("allow_network_downloads") is True
    if job.backend in ("evalscope", "inspect") and not online:
        faults += [
            f"{name}: {variable} is {value!r}, so it was not offline"
            for variable in OFFLINE
            if (value := value_at(command, "environment", variable)) != "1"
        ]
    return faults


def placed(case: SuiteCase, context: Context, expected: Any, recorded: Any) -> Any:
    """What is expected, its paths of this machine replaced by recorded ones that end as they must."""
    if isinstance(expected, Mapping):
        other = recorded if isinstance(recorded, Mapping) else {}
        return {key: placed(case, context, value, other.get(key)) for key, value in expected.items()}
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        others = list(recorded) if isinstance(recorded, list) else []
        others += [None] * len(expected)
        return [placed(case, context, value, other) for value, other in zip(expected, others, strict=False)]
    if not isinstance(expected, str) or not expected.startswith("/") or not isinstance(recorded, str):
        return expected
    tail = _tail(case, context, expected)
    return recorded if tail is not None and recorded.startswith("/") and recorded.endswith(tail) else expected


def _tail(case: SuiteCase, context: Context, expected: str) -> str | None:
    """What a path must end with on whatever machine; None for a path that is the suite's own word."""
    for root in (context.scratch.parent, case.run, pinset.current().data, ROOT):
        try:
            return f"/{Path(expected).relative_to(root).as_posix()}"
        except ValueError:
            continue
    return None
