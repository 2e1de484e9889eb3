"""What was said in a sample of Inspect AI, which the child appends in Inspect's own form when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from assay.record.sample import Sample
from assay.view.lines import Lines
from assay.view.message import failure, messages, number, optional_text
from assay.view.view import Exchange, Part

JUDGED = ("answer", "explanation", "reason", "metadata")
SPANS = {"total": "total_time", "working": "working_time"}


class Inspect:
    """Reads `samples.jsonl` of an attempt."""

    def exchange(self, sample: Sample, lines: Lines) -> Exchange | None:
        """See `assay.view.exchanges.Reader`."""
        value = lines.line(sample.record, sample.line)
        if value is None:
            return None
        found = value["sample"]
        errors = [each for each in (*found.get("error_retries", ()), found.get("error")) if each]
        target = found.get("target")
        said = {
            name: {each: score[each] for each in JUDGED if score.get(each)}
            for name, score in (found.get("scores") or {}).items()
        }
        return Exchange(
            messages=messages(found.get("messages")) or messages(found.get("input")),
            target="\n".join(target) if isinstance(target, list) else optional_text(target),
            parts=tuple(Part(name, number(score)) for name, score in value.get("numbers", {}).items()),
            scorer=optional_text({name: score for name, score in said.items() if score}),
            error="\n\n".join(failure(_kind(each)) for each in errors) or None,
            started=_moment(found.get("started_at")),
            spans={
                name: seconds
                for name, there in SPANS.items()
                if (seconds := number(found.get(there))) is not None
            },
        )

    def began(self, sample: Sample, lines: Lines) -> float | None:
        """See `assay.view.exchanges.Reader`."""
        value = lines.line(sample.record, sample.line)
        return None if value is None else _moment(value["sample"].get("started_at"))


def _kind(error: Mapping[str, Any]) -> dict[str, Any]:
    """The error without its coloured form."""
    return {name: error[name] for name in ("message", "traceback") if name in error}


def _moment(value: Any) -> float | None:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
