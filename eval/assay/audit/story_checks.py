"""Is what the run tells of itself one story: events, state, the directory's name, the rollouts' times?

Nobody can look at a clock again. But a date stands in many places, and who moves one moves it away from the
others; the clock of the machine may be set while a run goes on, so what differs by less than a minute is let
pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.coordinator.events import NAME, read_events
from assay.run.state import STAMP

SLACK = timedelta(seconds=60)
SHOWN = 10
SECONDS = "seconds.json"
KINDS = ("run-started", "entry-started", "entry-ended", "run-ended")


def events(case: Case) -> Check:
    """No event is missing, and they tell of the plan, the entries and the end that the state tells of."""
    rows = list(read_events(case.run))
    faults = []
    for count, row in enumerate(rows, start=1):
        if row["n"] != count:
            faults.append(f"{NAME}: event {row['n']} stands where event {count} belongs")
            break
    told = [_without_times(row) for row in rows if row.get("kind") in KINDS]
    wanted = list(_wanted(case))
    if told != wanted:
        odd = next(
            (index for index, pair in enumerate(zip(told, wanted, strict=False)) if pair[0] != pair[1]), None
        )
        index = min(len(told), len(wanted)) if odd is None else odd
        said, owed = (_at(found, index) for found in (told, wanted))
        faults.append(f"{NAME} tells {said}, where the plan and state.json have {owed}")
    return judge("events", faults, f"{len(rows)} events, none missing, as state.json tells it")


def _wanted(case: Case) -> Iterator[dict[str, Any]]:
    yield {"kind": "run-started", "profile": case.plan.profile, "digest": case.plan.digest}
    for entry in case.state.entries:
        if entry.started_at is None:
            continue
        yield {"kind": "entry-started", "entry": entry.name}
        yield {
            "kind": "entry-ended",
            "entry": entry.name,
            "finished": entry.finished,
            "planned": entry.planned,
            "native_exit_code": entry.native_exit_code,
        }
    yield {"kind": "run-ended", "status": case.state.phase}


def _without_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("n", "at", "error")}


def _at(found: list[dict[str, Any]], index: int) -> str:
    return str(found[index]) if index < len(found) else "nothing"


def times(case: Case) -> Check:
    """What happened later was dated later: the run, its entries, each of their rollouts, its events."""
    faults: list[str] = []
    before: tuple[str, datetime] | None = None
    for what, text in _dates(case):
        at = parsed(text)
        if at is None:
            faults.append(f"{what} is {text!r}, which is no time")
            continue
        if before is not None and at < before[1] - SLACK:
            faults.append(f"{what} is {text}, before {before[0]}, {before[1]:%Y-%m-%dT%H:%M:%SZ}")
        before = (what, at)
    stamp = STAMP.search(case.run.resolve().name)
    started = parsed(case.state.started_at)
    if stamp is None:
        faults.append(f"the directory's name {case.run.name} carries no time")
    elif started is not None:
        named = datetime.strptime(stamp["at"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(started - named) > SLACK:
            faults.append(
                f"the directory's name says {stamp['at']}, state.json started_at {case.state.started_at}"
            )
    faults += list(_wall(case, started))
    faults += list(_rollouts(case))[:SHOWN]
    return judge("times", faults, f"from {case.state.started_at} to {case.state.ended_at}, in one order")


def _wall(case: Case, started: datetime | None) -> Iterator[str]:
    """The seconds that the run counted, where its dates do not leave room for them."""
    ended = parsed(case.state.ended_at)
    wall = case.json(case.provenance / SECONDS).get("wall") if ended else None
    if started and ended and isinstance(wall, int | float):
        lasted = (ended - started).total_seconds()
        if abs(lasted - wall) > SLACK.total_seconds():
            yield f"provenance/{SECONDS} counts {wall} s, from started_at to ended_at it is {lasted} s"


def _dates(case: Case) -> Iterator[tuple[str, str]]:
    """Every date that the run wrote, in the order in which it wrote them."""
    said: dict[tuple[str, str | None], str] = {}
    for row in read_events(case.run):
        said.setdefault((str(row.get("kind")), row.get("entry")), str(row.get("at")))
    yield "state.json started_at", case.state.started_at
    yield from _event(said, "run-started")
    for entry in case.state.entries:
        yield from _event(said, "entry-started", entry.name)
        for name, value in (("started_at", entry.started_at), ("ended_at", entry.ended_at)):
            if value is not None:
                yield f"state.json {entry.name} {name}", value
        yield from _event(said, "entry-ended", entry.name)
    if case.state.ended_at is not None:
        yield "state.json ended_at", case.state.ended_at
    yield from _event(said, "run-ended")


def _event(
    said: Mapping[tuple[str, str | None], str], kind: str, entry: str | None = None
) -> Iterator[tuple[str, str]]:
    if (kind, entry) in said:
        yield f"{NAME} {kind}", said[kind, entry]


def _rollouts(case: Case) -> Iterator[str]:
    """Rollouts that their own record dates outside of their entry."""
    told = {entry.name: entry for entry in case.state.entries}
    for entry in case.plan.entries:
        begin, end = (parsed(getattr(told[entry.name], name)) for name in ("started_at", "ended_at"))
        if begin is None or end is None:
            continue
        for part in entry.parts:
            for where, episode in case.episodes(part):
                for at in _stamps(episode.value):
                    if not begin - SLACK <= at <= end + SLACK:
                        yield f"{where} is dated {at:%Y-%m-%dT%H:%M:%SZ}, outside of {entry.name}"
                        break


def _stamps(episode: Mapping[str, Any]) -> Iterator[datetime]:
    for trace in episode.get("traces") or ():
        timing = trace.get("timing") or {}
        for span in timing.values():
            for at in (span.get("start"), span.get("end")) if isinstance(span, dict) else ():
                if isinstance(at, int | float) and at > 0:
                    yield datetime.fromtimestamp(at, UTC)


def parsed(text: str | None) -> datetime | None:
    """A time as a run writes it; None for anything else."""
    try:
        return None if text is None else datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None
