"""The guesser that `--speculate` asks for: what it is, opened, and what the identity says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from server.engine import Engine, EngineError
from server.errors import MISSING_DEPENDENCY, StartError
from server.origin import Origin, check_model, find_origin
from server.plan import Holding, Memory, plan
from server.speculation import MOST_GUESSES, Guesser, ModelGuesser, NgramGuesser

NGRAM = "ngram"
TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class Speculation:
    """What is asked for; the answers are the same without it."""

    guesser: str  # "ngram", or the path of a small model
    most: int = 4  # tokens proposed for an answer and step, at most

    def __post_init__(self) -> None:
        """Refuse more than a model with state can be taken back by."""
        if not 1 <= self.most <= MOST_GUESSES:
            raise StartError(
                f"{self.most} draft tokens cannot be had",
                f"a step proposes 1 to {MOST_GUESSES}",
                f"--draft-tokens {min(max(self.most, 1), MOST_GUESSES)}",
            )


@dataclass(frozen=True, slots=True)
class Draft:
    """A small model that guesses, found and not loaded."""

    origin: Origin
    model_context: int  # what it was trained for

    def context(self, model: int) -> int:
        """Return the positions of its slots beside a model of so many: as many, where it can."""
        return min(model, self.model_context)

    def memory(self, slots: int, model: int) -> Memory:
        """Return what a device needs for it beside a model of so many answers at once and positions.

        The driver is left out: the model needs it already.
        """
        alone = _planned(self.origin, Holding(slots, self.context(model)))
        return replace(alone, total_bytes=alone.total_bytes - alone.driver_bytes, driver_bytes=0)


def find_draft(asked: Speculation | None) -> Draft | None:
    """Return the small model that is asked for; None when none is.

    Raises:
        StartError: it is none that can be served.
    """
    if asked is None or asked.guesser == NGRAM:
        return None
    path = Path(asked.guesser)
    check_model(path)
    try:
        origin = find_origin(path)
    except EngineError as error:
        raise _unusable(path, str(error)) from error
    return Draft(origin, _planned(origin, Holding(slots=1)).model_context)


def _planned(origin: Origin, holding: Holding) -> Memory:
    try:
        return plan(origin.model, holding, 0, [])[0]
    except EngineError as error:
        raise _unusable(origin.path, str(error)) from error


def _unusable(path: Path, why: str, instead: str = "") -> StartError:
    what = f"the draft model {path} cannot be used"
    return StartError(what, why, f"--speculate {NGRAM}{instead}", MISSING_DEPENDENCY)


@dataclass(frozen=True, slots=True)
class Opened:
    """A guesser that can be asked, and the engine under it, if there is one; whoever opened it closes it."""

    guesser: Guesser | None = None
    engine: Engine | None = None
    described: Mapping[str, object] = field(default_factory=lambda: {"kind": "none"})

    def close(self) -> None:
        """Free what it holds."""
        if self.engine is not None:
            self.engine.close()


def open_guesser(
    asked: Speculation | None,
    draft: Draft | None,
    model: Engine,
    metadata: Mapping[str, object],
    slots: int,
) -> Opened:
    """Return the guesser that is asked for.

    Args:
        asked: None for plain decoding.
        draft: the small model, where one is asked for.
        model: whose answers are guessed.
        metadata: the model's, its tokenizer's included.
        slots: answers at once.

    Raises:
        StartError: the small model cannot be loaded, or has another vocabulary.
    """
    if asked is None:
        return Opened()
    if draft is None:
        return Opened(NgramGuesser(), described={"kind": NGRAM, "draft_tokens": asked.most})
    origin = draft.origin
    try:
        engine = Engine(
            origin.model,
            threads=model.threads,
            slots=slots,
            context=draft.context(model.context),
            device=model.device,
        )
    except EngineError as error:
        raise _unusable(origin.path, str(error)) from error
    try:
        tokens = origin.metadata(engine.metadata, engine.vocabulary).get(TOKENS)
        if tokens != metadata.get(TOKENS) or engine.vocabulary != model.vocabulary:
            why = "its vocabulary is not the model's, token by token"
            raise _unusable(origin.path, why, ", or a small model of the same family")
        described = {"kind": "model", "draft_tokens": asked.most, "file_sha256": origin.sha256()}
    except BaseException:
        engine.close()
        raise
    return Opened(ModelGuesser(engine), engine, described)
