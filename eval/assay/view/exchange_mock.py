"""What was said in a rollout of the backend `mock`, whose child writes one line for each."""

from __future__ import annotations

from assay.backends import mock_child
from assay.backends.mock_records import PRIMARY
from assay.record.sample import Sample
from assay.view.lines import Lines
from assay.view.message import optional_text
from assay.view.view import Exchange, Message, Part


class Mock:
    """Reads `records.jsonl`."""

    def exchange(self, sample: Sample, lines: Lines) -> Exchange | None:
        """See `assay.view.exchanges.Reader`."""
        value = lines.line(sample.record, sample.line)
        if value is None:
            return None
        text = value.get("text")
        answer = (Message("assistant", str(text), optional_text(value.get("thought"))),)
        return Exchange(
            messages=(
                Message("user", mock_child.prompt(int(value["item"]))),
                *(answer if text is not None else ()),
            ),
            parts=(Part(PRIMARY, float(bool(value["right"]))),) if sample.reward is not None else (),
            error=optional_text(value.get("error")),
            spans={"total": float(value["seconds"])},
        )

    def began(self, sample: Sample, lines: Lines) -> float | None:
        """Nobody measured."""
        return None
