"""Pairs with other rewards, with links to both records and, where it is asked for, what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.compare.comparison import Compared, Flip, Half
from assay.compare.pairing import Letter, Pair, Places, Row
from assay.view.view import Exchange, View


def flip(pair: Pair) -> Flip:
    """A pair as a flip, without its texts."""
    return Flip(
        task_key=pair.task_key,
        rollout=pair.rollout,
        family=pair.family,
        change=round(pair.change, 6),
        a=_half(pair.a),
        b=_half(pair.b),
    )


def with_texts(
    compared: Sequence[Compared], views: Mapping[Letter, View], places: Mapping[Letter, Places]
) -> tuple[Compared, ...]:
    """The same with what the models said in each listed flip, as far as the runs still have it.

    Args:
        compared: The benchmarks, by their number.
        views: Both runs.
        places: Which benchmark a row of each belongs to, by its number.
    """
    said: dict[Letter, dict[tuple[str, str, int], str | None]] = {"a": {}, "b": {}}
    wanted = {(found.name, listed.task_key, listed.rollout) for found in compared for listed in found.flips}
    for side, view in views.items():
        for sample in view.samples() if wanted else ():
            name = places[side].name(sample)
            if name is not None and (key := (name, sample.task_key, sample.rollout)) in wanted:
                said[side][key] = last_words(view.exchange(sample))
    return tuple(
        found.model_copy(
            update={
                "flips": tuple(
                    listed.model_copy(
                        update={
                            side: getattr(listed, side).model_copy(
                                update={"text": texts.get((found.name, listed.task_key, listed.rollout))}
                            )
                            for side, texts in said.items()
                        }
                    )
                    for listed in found.flips
                )
            }
        )
        for found in compared
    )


def last_words(exchange: Exchange | None) -> str | None:
    """The text of the model's last message, or its calls where it has no text; None where there is none."""
    if exchange is None:
        return None
    answers = [message for message in exchange.messages if message.role == "assistant"]
    return (answers[-1].text or "\n".join(answers[-1].calls)) if answers else None


def _half(row: Row) -> Half:
    link = None if row.record is None else f"{row.record}:{row.line}"
    return Half(reward=row.reward, status=row.status, link=link)
