"""The guesser that `--speculate` asks for: what it is, opened, and what the identity says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from server.engine import Engine, EngineError
from server.errors import MISSING_DEPENDENCY, StartError
from server.inspection import EngineOptions, inspect
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

    def engine(self, model: EngineOptions, slots: int, context: int) -> EngineOptions:
        """Return how it is opened beside a model of so many answers at once and positions."""
        return EngineOptions(
            threads=model.threads, slots=slots, context=self.context(context), device=model.device
        )

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


def check_draft(
    draft: Draft, options: EngineOptions, metadata: Mapping[str, object], vocabulary: int
) -> None:
    """Hold a small model's header against the model's, before the weights of either are read.

    Args:
        draft: the small model.
        options: how it will be opened.
        metadata: the model's, its tokenizer's included.
        vocabulary: the model's ids.

    Raises:
        StartError: the small model cannot be opened, has no tokenizer, or another vocabulary.
    """
    origin = draft.origin
    try:
        origin.check_files()
        found = inspect(origin.model, options)
    except EngineError as error:
        raise _unusable(origin.path, str(error)) from error
    tokens = origin.metadata(found.metadata, found.vocabulary).get(TOKENS)
    if tokens is None:
        raise _unusable(origin.path, f"it has no tokenizer: its metadata has no list `{TOKENS}`")
    if tokens != metadata.get(TOKENS) or found.vocabulary != vocabulary:
        why = "its vocabulary is not the model's, token by token"
        raise _unusable(origin.path, why, ", or a small model of the same family")


def open_guesser(
    asked: Speculation | None, draft: Draft | None, model: Engine, options: EngineOptions, slots: int
) -> Opened:
    """Return the guesser that is asked for.

    Args:
        asked: None for plain decoding.
        draft: the small model, where one is asked for; :func:`check_draft` has nothing against it.
        model: whose answers are guessed.
        options: how that was opened.
        slots: answers at once.

    Raises:
        StartError: the small model cannot be loaded or hashed.
    """
    if asked is None:
        return Opened()
    if draft is None:
        return Opened(NgramGuesser(), described={"kind": NGRAM, "draft_tokens": asked.most})
    origin = draft.origin
    try:
        engine = Engine(origin.model, **asdict(draft.engine(options, slots, model.context)))
    except EngineError as error:
        raise _unusable(origin.path, str(error)) from error
    try:
        if engine.vocabulary != model.vocabulary:
            raise _unusable(origin.path, "it changed while it was being loaded")
        described = {"kind": "model", "draft_tokens": asked.most, "file_sha256": origin.sha256()}
    except OSError as error:
        engine.close()
        raise _unusable(origin.path, f"its files cannot be hashed: {error}") from error
    except BaseException:
        engine.close()
        raise
    return Opened(ModelGuesser(engine), engine, described)
