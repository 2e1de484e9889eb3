"""What was said in a rollout of Verifiers: `traces.jsonl` of 0.3 and 0.4, `results.jsonl` of 0.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.record.episodes import TRACES
from assay.record.native import span
from assay.record.results_v0 import OWN_METRICS, RESULTS
from assay.record.sample import Sample
from assay.view.lines import Lines, Value
from assay.view.message import failure, message, messages, number, optional_text
from assay.view.view import Exchange, Message, Part

# Where tasksets keep the answer that they want, in the order of how sure the name is.
TARGETS = ("answer", "target", "solution", "ground_truth", "gold")
STAGES = ("boot", "setup", "agent", "finalize", "scoring")
STAGES_V0 = ("setup", "generation", "scoring")


class Traces:
    """Reads `traces.jsonl`: an episode a line, whose last trace is the rollout."""

    def exchange(self, sample: Sample, lines: Lines) -> Exchange | None:
        """See `assay.view.exchanges.Reader`."""
        episode = lines.line(sample.record, sample.line)
        if episode is None:
            return None
        trace = _trace(episode)
        data = episode["task"]["data"]
        said = tuple(message(node["message"]) for node in trace.get("nodes") or () if node.get("message"))
        errors = [failure(each) for each in (*trace.get("errors", ()), *episode.get("errors", ()))]
        beside = {name: trace[name] for name in ("metrics", "info") if trace.get(name)}
        return Exchange(
            messages=said or _asked(data),
            target=_target(data),
            parts=tuple(_part(name, given) for name, given in (trace.get("rewards") or {}).items()),
            scorer=optional_text(beside),
            error="\n\n".join(errors) or None,
            started=number(trace.get("timing", {}).get("start")) or _start(trace, "boot"),
            spans=_spans(trace.get("timing") or {}, STAGES),
        )

    def began(self, sample: Sample, lines: Lines) -> float | None:
        """See `assay.view.exchanges.Reader`."""
        episode = lines.line(sample.record, sample.line)
        if episode is None:
            return None
        trace = _trace(episode)
        return number(trace.get("timing", {}).get("start")) or _start(trace, "boot")


class Results:
    """Reads `results.jsonl`: a rollout a line."""

    def exchange(self, sample: Sample, lines: Lines) -> Exchange | None:
        """See `assay.view.exchanges.Reader`."""
        value = lines.line(sample.record, sample.line)
        if value is None:
            return None
        metrics = value.get("metrics") or {}
        error = value.get("error")
        return Exchange(
            messages=(*messages(value.get("prompt")), *messages(value.get("completion"))),
            target=optional_text(value.get("answer")),
            parts=tuple(
                Part(str(name), number(score)) for name, score in metrics.items() if name not in OWN_METRICS
            ),
            scorer=optional_text(value.get("info")),
            error=None if error is None else failure(error),
            started=number((value.get("timing") or {}).get("start_time")),
            spans=_spans(value.get("timing") or {}, STAGES_V0),
        )

    def began(self, sample: Sample, lines: Lines) -> float | None:
        """See `assay.view.exchanges.Reader`."""
        value = lines.line(sample.record, sample.line)
        return None if value is None else number((value.get("timing") or {}).get("start_time"))


READERS: Mapping[str, Traces | Results] = {TRACES: Traces(), RESULTS: Results()}


def reader(sample: Sample) -> Traces | Results | None:
    """The reader of a row's record, by the record's name."""
    return None if sample.record is None else READERS.get(sample.record.rpartition("/")[2])


def _trace(episode: Value) -> Mapping[str, Any]:
    traces = episode.get("traces") or ()
    found: Mapping[str, Any] = traces[-1] if traces else {}
    return found


def _asked(data: Mapping[str, Any]) -> tuple[Message, ...]:
    """What was to be asked, of a rollout that left no trace."""
    system = data.get("system_prompt")
    first = (Message("system", system),) if isinstance(system, str) and system else ()
    return (*first, *messages(data.get("prompt") or data.get("question")))


def _target(data: Mapping[str, Any]) -> str | None:
    info = data.get("info")
    for table in (data, info if isinstance(info, Mapping) else {}):
        for name in TARGETS:
            if (found := optional_text(table.get(name))) is not None:
                return found
    return None


def _part(name: str, given: Any) -> Part:
    if not isinstance(given, Mapping):
        return Part(name, None)
    return Part(name, number(given.get("score")), number(given.get("weight")))


def _spans(timing: Mapping[str, Any], stages: tuple[str, ...]) -> dict[str, float]:
    return dict(_measured(timing, stages))


def _measured(timing: Mapping[str, Any], stages: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name in stages:
        seconds = span(timing, name) if isinstance(timing.get(name), Mapping) else None
        if seconds is not None:
            yield name, seconds


def _start(trace: Mapping[str, Any], stage: str) -> float | None:
    found = (trace.get("timing") or {}).get(stage)
    return number(found.get("start")) if isinstance(found, Mapping) else None
