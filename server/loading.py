"""From a model's files to something that can answer: engine, tokenizer, template, identity, scheduler."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from server import identity
from server.checkpoint import Checkpoint
from server.dialect import Dialect
from server.engine import Engine, EngineArgumentError, EngineError, EngineMemoryError, built
from server.errors import MISSING_DEPENDENCY, StartError
from server.gpu_speed import Measure
from server.grammar import GrammarCompiler
from server.guesser import Draft, Opened, Speculation, find_draft, open_guesser
from server.metrics import Metrics
from server.origin import Origin, find_origin
from server.plan import Holding, gib, plan, with_kept
from server.scheduler import Limits, Scheduler, Stepper
from server.service import Served
from server.speculation import Guesser
from server.template import ChatTemplate
from server.tokenizer import Tokenizer
from server.vocabulary import shown

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


def load(options: ModelOptions, metrics: Metrics) -> Loaded:
    """Load the model, hashing its files meanwhile, and start its scheduler.

    Raises:
        StartError: the engine, the tokenizer or the template cannot be had from this model.
    """
    begin = time.perf_counter()
    draft = find_draft(options.speculation)
    with _served(options.path):
        origin = find_origin(options.path)
    with _hashed(origin) as digest:
        with _served(options.path):
            kept = _kept_slots(options, origin.model, draft)
            kept_tokens = options.kept_tokens if kept else 0
            engine = Engine(
                origin.model,
                threads=options.threads,
                slots=options.slots + kept,
                context=options.context,
                isa=options.isa,
                kv=options.kv,
                head=options.head,
                device=options.device,
                kept_slots=kept,
                kept_positions=kept_tokens,
                memory_bytes=options.memory_bytes,
                progress=_Progress(),
            )
        try:
            metadata = origin.metadata(engine.metadata, engine.vocabulary)
            guesser = open_guesser(options.speculation, draft, engine, metadata, options.slots)
        except BaseException:
            engine.close()
            raise
        guesses = options.speculation.most if options.speculation is not None else 0
        limits = Limits(kept_slots=kept, kept_tokens=kept_tokens, guesses=guesses)
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
            template = metadata.get("tokenizer.chat_template")
            described = identity.describe(
                name=options.name,
                model_sha256=_digested(digest, options.path),
                size_bytes=origin.size_bytes(),
                metadata=metadata,
                template=template if isinstance(template, str) else "",
                engine=facts,
                prefill_chunk=limits.prefill_alone,
                quantisation=origin.quantisation,
                speculation=guesser.described,
            )
            served = assemble(options.name, engine, metadata, described, metrics, limits, guesser.guesser)
        except BaseException:
            guesser.close()
            engine.close()
            raise
    if origin.note:
        logger.info("%s", origin.note)
    logger.info("loaded %s in %.2f s", options.path, time.perf_counter() - begin)
    return Loaded(served, engine, guesser)


def assemble(
    name: str,
    engine: Stepper,
    metadata: Mapping[str, object],
    described: Mapping[str, object],
    metrics: Metrics,
    limits: Limits,
    guesser: Guesser | None = None,
) -> Served:
    """Put tokenizer, template and scheduler around `engine` and start the scheduler."""
    tokenizer = Tokenizer(metadata)
    if tokenizer.size != engine.vocabulary:
        raise StartError(
            "the model file contradicts itself",
            f"its tokenizer has {tokenizer.size} tokens, its output {engine.vocabulary}",
            "assay model fetch NAME",
            MISSING_DEPENDENCY,
        )
    scheduler = Scheduler(engine, tokenizer, metrics, limits, guesser)
    template = _template(metadata, tokenizer)
    served = Served(
        name=name,
        created=int(time.time()),
        tokenizer=tokenizer,
        template=template,
        dialect=Dialect.read(template.source, tokenizer) if template else Dialect(),
        grammars=GrammarCompiler(tokenizer),
        scheduler=scheduler,
        context=engine.context,
        vocabulary=engine.vocabulary,
        identity=described,
        fingerprint=str(described["system_fingerprint"]),
    )
    scheduler.start()
    return served


def _template(metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate | None:
    source = metadata.get("tokenizer.chat_template")
    if source is None:
        return None
    if not isinstance(source, str):
        raise StartError(
            "the model's chat template cannot be read",
            f"`tokenizer.chat_template` is {shown(source)}, which is no text",
            "use a model file with a valid tokenizer.chat_template",
            MISSING_DEPENDENCY,
        )
    variables = {}
    for variable, key in (("bos_token", "bos_token_id"), ("eos_token", "eos_token_id")):
        token = metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(token, int) and 0 <= token < tokenizer.size:
            variables[variable] = tokenizer.decode([token], control=True)
    return ChatTemplate(source, tokenizer.control_names, variables)
