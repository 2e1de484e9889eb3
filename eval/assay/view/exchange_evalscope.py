"""What was said in a sample of EvalScope: its prediction, its review, and the requests of a BFCL entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from assay.backends import evalscope_records as records
from assay.record.sample import Sample
from assay.view import lines
from assay.view.message import as_text, message, messages, number, optional_text
from assay.view.view import Exchange, Message, Part

JUDGED = ("extracted_prediction", "explanation", "metadata")


class EvalScope:
    """Reads `predictions/`, `reviews/` and `calls.jsonl`, which belong together by a sample's index."""

    def __init__(self) -> None:
        self._reviews: dict[str, records.Lines] = {}
        self._calls: dict[str, dict[records.Place, list[Any]]] = {}

    def exchange(self, sample: Sample, native: lines.Lines) -> Exchange | None:
        """See `assay.view.exchanges.Reader`."""
        value = native.line(sample.record, sample.line)
        if value is None or sample.record is None:
            return None
        if "model_output" not in value:
            return Exchange(error=as_text(value["error"]))
        place = sample.task_key.rpartition("/")[0], int(value["index"])
        review = self._review(sample.record, place[1], native)
        calls = self._asked(sample.record, native).get(place)
        score = review["sample_score"]["score"] if review is not None else {}
        said = {name: score[name] for name in JUDGED if score.get(name)}
        spans = {f"call {n}": float(call["seconds"]) for n, call in enumerate(calls or (), start=1)}
        total = number(value["model_output"].get("time"))
        return Exchange(
            messages=_functions(value) if calls is not None else _chat(value),
            target=optional_text(review.get("target")) if review is not None else None,
            parts=tuple(Part(str(name), number(given)) for name, given in score.get("value", {}).items()),
            scorer=optional_text(said),
            error=sample.error,
            spans=spans if len(spans) > 1 or total is None else {"total": total},
        )

    def began(self, sample: Sample, native: lines.Lines) -> float | None:
        """Nobody measured."""
        return None

    def _review(self, record: str, index: int, native: lines.Lines) -> Mapping[str, Any] | None:
        folder, _, name = record.rpartition("predictions/")
        if record not in self._reviews:
            self._reviews[record] = records.Lines(native.path(f"{folder}reviews/{name}"))
        found = self._reviews[record].read(index)
        return None if found is None else found[1]

    def _asked(self, record: str, native: lines.Lines) -> Mapping[records.Place, list[Any]]:
        """The requests of the attempt's samples; of BFCL alone there is a record."""
        # <job>/attempt-<n>/predictions/…
        attempt = "/".join(PurePosixPath(record).parts[:2])
        if attempt not in self._calls:
            told = native.all(f"{attempt}/{records.CALLS}")
            self._calls[attempt] = {
                (str(value["subset"]), int(value["index"])): value["calls"] for _, value in told
            }
        return self._calls[attempt]


def _chat(value: Mapping[str, Any]) -> tuple[Message, ...]:
    """One request and its answer, which the recorded conversation may or may not hold."""
    said = messages(value.get("messages"))
    choices = value["model_output"].get("choices") or ()
    if choices and (not said or said[-1].role != "assistant"):
        said = (*said, message({"role": "assistant", **choices[0]["message"]}))
    return said


def _functions(value: Mapping[str, Any]) -> tuple[Message, ...]:
    """An entry of BFCL: the functions that may be called, each turn's question, what was made of the answer.

    BFCL records the answer as JSON: a text or calls, of several turns a list of them.
    """
    metadata = value.get("metadata") or {}
    offered = metadata.get("function")
    turns = [messages(turn) for turn in metadata.get("question") or ()] or [messages(value.get("messages"))]
    content = value["model_output"]["choices"][0]["message"]["content"]
    answer = json.loads(content)
    each = answer if isinstance(answer, list) and len(turns) > 1 else [answer]
    found = [Message("tools", as_text(offered))] if offered else []
    for position, turn in enumerate(turns):
        found += turn
        if position < len(each):
            found.append(Message("assistant", as_text(each[position])))
    return tuple(found)
