"""From a model's files to something that can answer: engine, tokenizer, template, identity, scheduler.

Contract: what the files' headers, the tokenizer, the chat template and the options alone can make impossible
is told by :func:`prepare`, before any weights are read or hashed: loading a large model takes minutes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from server import identity
from server.checkpoint import Checkpoint
from server.engine import Engine, EngineArgumentError, EngineError, EngineMemoryError
from server.errors import MISSING_DEPENDENCY, StartError
from server.gpu_speed import Measure
from server.guesser import Draft, Opened, Speculation, check_draft, find_draft, open_guesser
from server.inspection import EngineOptions, built, inspect
from server.language import Language
from server.metrics import Metrics
from server.origin import Origin, find_origin
from server.plan import Holding, gib, plan, with_kept
from server.scheduler import Limits, Scheduler, Stepper
from server.service import Served
from server.speculation import Guesser

logger = logging.getLogger(__name__)

KEPT_SLOTS = 24  # where nothing else is asked for
PROGRESS_S = 2.0  # between two words about it
MOST_SLOTS = 1024  # of an engine (engine/request.h)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What is served and how; None leaves the choice to the engine."""

    path: Path
    name: str
    threads: int | None = None
    slots: int = 8  # answers at once
    context: int | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    isa: str | None = None
    kv: Literal["f16", "int8", "q4"] = "f16"
    head: Literal["stored", "q8_0"] = "stored"
    # Ended answers whose keys and values stay for prompts that begin alike; None: KEPT_SLOTS, or as many of
    # them as a GPU has room for.
    kept_slots: int | None = None
    kept_tokens: int = 16384  # positions they may keep together
    memory_bytes: int = 0  # of a device, that may be taken; 0: what is free
    speculation: Speculation | None = None  # None: plain decoding


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that answers, and the engines under it; whoever loaded it closes it."""

    served: Served
    engine: Engine
    guesser: Opened

    def close(self) -> None:
        """End what is under way and free the engine."""
        self.served.scheduler.close()
        self.guesser.close()
        self.engine.close()


class _Progress:
    """Logs how much of the weights is loaded, now and then."""

    def __init__(self) -> None:
        self._begin = self._told = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        """Take notice of bytes done, of so many."""
        now = time.perf_counter()
        if now - self._told < PROGRESS_S:
            return
        self._told = now
        rate = done / (now - self._begin)
        logger.info(
            "loaded %.1f of %.1f GB of weights (%.0f %%), %.2f GB/s",
            done / 1e9,
            total / 1e9,
            100 * done / total,
            rate / 1e9,
        )


def most_kept(slots: int, asked: int | None) -> int:
    """Return how many ended answers may be kept beside so many at once: those asked for, else KEPT_SLOTS.

    Raises:
        StartError: they are more than an engine has slots.
    """
    if slots + (asked or 0) > MOST_SLOTS:
        raise StartError(
            f"{slots} answers at once and {asked or 0} kept ones cannot be had",
            f"the engine has at most {MOST_SLOTS} slots",
            "choose smaller --slots and --kept-slots",
        )
    return min(KEPT_SLOTS, MOST_SLOTS - slots) if asked is None else asked


def _kept_slots(options: ModelOptions, model: Path | Checkpoint, draft: Draft | None) -> int:
    """Return how many ended answers are kept; where nobody said, no more than a GPU has room for.

    Raises:
        EngineError: the model is not served.
        StartError: a GPU has no room for the model and the small one beside it.
    """
    most = most_kept(options.slots, options.kept_slots)
    if options.device == "cpu" or (draft is None and options.kept_slots is not None):
        return most
    kept = options.kept_slots or 0
    holding = Holding(
        options.slots, options.context, options.kv, kept, options.kept_tokens, head=options.head
    )
    memory, _ = plan(model, holding, 0, [])
    taken = 0 if draft is None else draft.memory(options.slots, memory.context).total_bytes
    free = Measure(built(options.device).library).device().free_bytes + memory.driver_bytes
    room = min(free, options.memory_bytes or free)
    if draft is not None and memory.total_bytes + taken > room:
        raise StartError(
            f"{options.path} and {draft.origin.path}, which guesses for it, do not fit into memory",
            f"they take {gib(memory.total_bytes)} and {gib(taken)} of device memory, driver included, and "
            + (f"{gib(room)} are free" if room == free else f"{gib(room)} are allowed"),
            f"assay serve '{options.path}' --speculate '{draft.origin.path}' --plan"
            "   # then smaller --slots, --kept-slots or --context",
            MISSING_DEPENDENCY,
        )
    if options.kept_slots is not None:
        return kept
    return with_kept(model, holding, most, max(room - taken, 0)).kept_slots


@contextmanager
def _served(path: Path) -> Iterator[None]:
    """Turn what an engine says of a model into what a person is told."""
    try:
        yield
    except EngineArgumentError as error:
        raise StartError("the engine cannot be started as asked", str(error), "assay serve --help") from error
    except EngineMemoryError as error:
        raise StartError(
            f"{path} does not fit into memory",
            str(error),
            f"assay serve '{path}' --plan   # then smaller --slots, --kept-slots or --context",
            MISSING_DEPENDENCY,
        ) from error
    except EngineError as error:
        raise StartError(
            f"the engine cannot load {path}", str(error), "assay doctor", MISSING_DEPENDENCY
        ) from error


@contextmanager
def _hashed(origin: Origin) -> Iterator[Future[str]]:
    """Hash a model's files beside what is done meanwhile; when that fails, nobody waits for the rest."""
    given_up = threading.Event()
    with ThreadPoolExecutor(1, "digest") as pool:
        try:
            yield pool.submit(origin.sha256, given_up)
        except BaseException:
            given_up.set()
            raise


def _digested(digest: Future[str], path: Path) -> str:
    try:
        return digest.result()
    except (OSError, EngineError) as error:
        raise StartError(
            f"the files of {path} cannot be hashed", str(error), f"ls -lL '{path}'", MISSING_DEPENDENCY
        ) from error


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model of which nothing stands against loading it, as far as can be told without its weights."""

    origin: Origin
    engine: EngineOptions
    header: Mapping[str, object]  # the metadata that the engine's library reads
    metadata: Mapping[str, object]  # with a directory's tokenizer
    language: Language
    draft: Draft | None


def prepare(options: ModelOptions) -> Prepared:
    """Check everything that can be known before weights are read, of the model and of the one that guesses.

    Raises:
        StartError: the model cannot be served as asked.
    """
    draft = find_draft(options.speculation)
    with _served(options.path):
        origin = find_origin(options.path)
        origin.check_files()
        kept = _kept_slots(options, origin.model, draft)
        engine = EngineOptions(
            threads=options.threads,
            slots=options.slots + kept,
            context=options.context,
            isa=options.isa,
            kv=options.kv,
            head=options.head,
            device=options.device,
            kept_slots=kept,
            kept_positions=options.kept_tokens if kept else 0,
            memory_bytes=options.memory_bytes,
        )
        found = inspect(origin.model, engine)
    metadata = origin.metadata(found.metadata, found.vocabulary)
    language = Language.read(metadata, found.vocabulary)
    if draft is not None:
        check_draft(draft, draft.engine(engine, options.slots, found.context), metadata, found.vocabulary)
    return Prepared(origin, engine, found.metadata, metadata, language, draft)


def load(options: ModelOptions, metrics: Metrics) -> Loaded:
    """Load the model, hashing its files meanwhile, and start its scheduler.

    Raises:
        StartError: the engine, the tokenizer or the template cannot be had from this model.
    """
    begin = time.perf_counter()
    prepared = prepare(options)
    origin, language, wanted = prepared.origin, prepared.language, prepared.engine
    with _hashed(origin) as digest:
        with _served(options.path):
            engine = Engine(origin.model, progress=_Progress(), **asdict(wanted))
        try:
            _check_unchanged(prepared, engine)
            guesser = open_guesser(options.speculation, prepared.draft, engine, wanted, options.slots)
        except BaseException:
            engine.close()
            raise
        guesses = options.speculation.most if options.speculation is not None else 0
        limits = Limits(kept_slots=wanted.kept_slots, kept_tokens=wanted.kept_positions, guesses=guesses)
        build = engine.build
        facts = identity.EngineFacts(
            version=version("assay"),
            library_sha256=build.library_sha256,
            source_sha256=build.source_sha256,
            compiler=build.compiler,
            flags=build.flags,
            isa=engine.isa,
            device=options.device,
            kv_dtype=engine.kv,
            head=engine.head,
            threads=engine.threads,
            slots=options.slots,
            context=engine.context,
        )
        try:
            described = identity.describe(
                name=options.name,
                model_sha256=_digested(digest, options.path),
                size_bytes=origin.size_bytes(),
                metadata=prepared.metadata,
                tokenizer=language.tokenizer_sha256,
                template=language.template.source if language.template else "",
                engine=facts,
                prefill_chunk=limits.prefill_alone,
                quantisation=origin.quantisation,
                speculation=guesser.described,
            )
            served = assemble(options.name, engine, language, described, metrics, limits, guesser.guesser)
        except BaseException:
            guesser.close()
            engine.close()
            raise
    if origin.note:
        logger.info("%s", origin.note)
    logger.info("loaded %s in %.2f s", options.path, time.perf_counter() - begin)
    return Loaded(served, engine, guesser)


def _check_unchanged(prepared: Prepared, engine: Engine) -> None:
    """Raise StartError when the engine holds another model than the one that was looked at."""
    # As texts: what is no number is unlike itself.
    same = repr(dict(engine.metadata)) == repr(dict(prepared.header))
    if engine.vocabulary != prepared.language.tokenizer.size or not same:
        raise StartError(
            f"{prepared.origin.path} changed while it was being loaded",
            "its metadata is not what it was when it was looked at first",
            "the same command again",
            MISSING_DEPENDENCY,
        )


def assemble(
    name: str,
    engine: Stepper,
    language: Language,
    described: Mapping[str, object],
    metrics: Metrics,
    limits: Limits,
    guesser: Guesser | None = None,
) -> Served:
    """Put a scheduler between `engine` and its language, and start it."""
    scheduler = Scheduler(engine, language.tokenizer, metrics, limits, guesser)
    served = Served(
        name=name,
        created=int(time.time()),
        tokenizer=language.tokenizer,
        template=language.template,
        dialect=language.dialect,
        grammars=language.grammars,
        scheduler=scheduler,
        context=engine.context,
        vocabulary=engine.vocabulary,
        identity=described,
        fingerprint=str(described["system_fingerprint"]),
    )
    scheduler.start()
    return served
