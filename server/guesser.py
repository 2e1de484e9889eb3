"""The guesser that `--speculate` asks for: what it is, opened, and what the identity says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from server.engine import Engine, EngineError
from server.errors import MISSING_DEPENDENCY, StartError
from server.origin import check_model, find_origin
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
    asked: Speculation | None, model: Engine, metadata: Mapping[str, object], slots: int
) -> Opened:
    """Return the guesser that is asked for.

    Args:
        asked: None for plain decoding.
        model: whose answers are guessed.
        metadata: the model's, its tokenizer's included.
        slots: answers at once.

    Raises:
        StartError: the small model cannot be loaded, or has another vocabulary.
    """
    if asked is None:
        return Opened()
    if asked.guesser == NGRAM:
        return Opened(NgramGuesser(), described={"kind": NGRAM, "draft_tokens": asked.most})
    path = Path(asked.guesser)
    check_model(path)
    what = f"the draft model {path} cannot be used"
    try:
        origin = find_origin(path)
        engine = Engine(origin.model, threads=model.threads, slots=slots, device=model.device)
    except EngineError as error:
        raise StartError(what, str(error), f"--speculate {NGRAM}", MISSING_DEPENDENCY) from error
    try:
        tokens = origin.metadata(engine.metadata, engine.vocabulary).get(TOKENS)
        if tokens != metadata.get(TOKENS) or engine.vocabulary != model.vocabulary:
            raise StartError(
                what,
                "its vocabulary is not the model's, token by token",
                f"--speculate {NGRAM}, or a small model of the same family",
                MISSING_DEPENDENCY,
            )
        described = {"kind": "model", "draft_tokens": asked.most, "file_sha256": origin.sha256()}
    except BaseException:
        engine.close()
        raise
    return Opened(ModelGuesser(engine), engine, described)
