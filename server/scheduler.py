"""Continuous batching: one thread owns the engine and runs a step for whoever is there.

At every step each answer under way adds its last token, and prompts that still have to be read share what
is left of the step's token budget, oldest first. Requests join and leave between steps; a client that went
away frees its slots before the next one. The engine gives the same bytes for a token whatever else is in
its batch, so nothing here can change an answer at temperature 0.

With a guesser (`speculation.py`) a step writes, behind an answer's last token, tokens that it proposes, and
takes a row for each; an answer goes on through these rows as long as it chooses what was proposed.

The thread sleeps on a condition when there is nothing to do. What it has for the event loop it hands over
once a step, in one call, so the loop is woken once however many answers are under way. An exception of the
engine ends the requests that were in the batch, with an error, and not the thread: what their slots hold is
not known then. An exception over one row of its result, in choosing or in reading a token, ends the request
of that row alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from server.engine import Chunk, StepResult
from server.errors import ApiError, answer_failed, engine_failed, queue_full, shutting_down
from server.generation import Answer, Delta, Generation
from server.metrics import Metrics
from server.prefix import PrefixCache
from server.radix import common_tokens
from server.speculation import Guesser, Text
from server.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

Event = Delta | ApiError

# None ends a queue whose client went away; only the event loop puts it there.


class Stepper(Protocol):
    """The part of the engine that the scheduler drives."""

    slots: int
    context: int
    vocabulary: int

    def fork(self, source: int, slot: int, positions: int) -> None:
        """Make `slot` hold the first positions of `source`."""

    def rewindable(self, slot: int) -> int:
        """Return the fewest positions above 0 that `slot` can be taken back to; 0: any number."""

    def ahead(self, position: int) -> int:
        """Return how many tokens may be written behind the one at a position and taken back again."""

    def step(self, chunks: Sequence[Chunk]) -> StepResult:
        """Run one batch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much work is taken on at once."""

    waiting: int = 256  # choices without a slot before a request is refused with 429
    prefill_alone: int = 512  # prompt tokens a step when nobody waits for his next token
    prefill_mixed: int = 128  # prompt tokens a step beside answers under way, whose gap they lengthen
    kept_slots: int = (
        0  # slots more than answers at once, for what ended answers leave to prompts that begin alike
    )
    kept_tokens: int = 16384  # positions they may keep together
    worth_waiting: int = (
        32  # prompt tokens: to take over so many from a prompt that is being read, another waits
    )
    prefill_scored: int = 64  # the same, where each prompt token's logits are wanted (a row of memory each)
    guesses: int = 0  # tokens that a guesser proposes for an answer and step, at most


@dataclass(eq=False, slots=True)
class Ticket:
    """One request's hold on the scheduler: its events, and whether its client is still there."""

    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue)
    cancelled: bool = False


@dataclass(eq=False, slots=True)
class _Job:
    ticket: Ticket
    answer: Answer
    fed: list[int] = field(default_factory=list)  # tokens written behind the prompt
    failed: bool = False  # in a step: what its slot holds is not known, or not to be kept
    text: Text | None = None  # for the guesser, from the first answered token on
    guess: list[int] = field(default_factory=list)  # in a step: written behind the last token, not chosen yet

    def held(self) -> Sequence[int]:
        """Return the tokens that its slot holds and may keep."""
        if self.failed or not self.answer.generation.cache_prompt:
            return ()
        prompt, position = self.answer.generation.prompt, self.answer.position
        return prompt[:position] if position < len(prompt) else (*prompt, *self.fed)


class Scheduler:
    """The queue, the slots and the engine thread; `submit` and `cancel` come from the event loop."""

    def __init__(
        self,
        engine: Stepper,
        tokenizer: Tokenizer,
        metrics: Metrics,
        limits: Limits,
        guesser: Guesser | None = None,
    ) -> None:
        """Make the scheduler; `start` runs it."""
        self._engine = engine
        self._guesser = guesser
        self._tokenizer = tokenizer
        self._metrics = metrics
        self.limits = limits
        self._condition = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._at_once = engine.slots - limits.kept_slots
        self._cache = PrefixCache(engine, limits.kept_tokens)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the engine thread."""
        self._thread.start()

    def close(self) -> None:
        """End what is still under way with an error and join the thread."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, generations: Sequence[Generation]) -> Ticket:
        """Queue the choices of one request; their index is their place in `generations`.

        Raises:
            ApiError: 429 when the queue has no room for all of them.
        """
        ticket = Ticket(asyncio.get_running_loop())
        jobs = [_Job(ticket, Answer(each, index, self._tokenizer)) for index, each in enumerate(generations)]
        with self._condition:
            if self._closing:
                raise shutting_down()
            free = self._at_once - len(self._running)
            if len(self._waiting) + len(jobs) > self.limits.waiting + free:
                raise queue_full(len(self._waiting))
            self._waiting.extend(jobs)
            self._metrics.waiting = len(self._waiting)
            self._condition.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Forget a request: what waits leaves the queue now, what runs frees its slot within a step."""
        ticket.cancelled = True
        with self._condition:
            self._waiting = deque(job for job in self._waiting if job.ticket is not ticket)
            self._metrics.waiting = len(self._waiting)

    def _run(self) -> None:
        while True:
            try:
                if not self._admit():
                    return
                self._deliver(self._attempt(list(self._running)))
            except Exception:
                logger.exception("the scheduler failed; it begins again with empty slots")
                self._give_up()

    def _attempt(self, batch: Sequence[_Job]) -> list[tuple[_Job, Event]]:
        try:
            return self._step(batch)
        except Exception:
            # Whatever it was, these requests cannot go on; the next ones may.
            logger.exception("the engine failed on a batch of %d", len(batch))
            for job in batch:
                job.failed = True
            self._metrics.engine_errors += 1
            return [(job, engine_failed()) for job in batch]

    def _give_up(self) -> None:
        """End all that runs and waits with an error: between steps all of it may be torn."""
        with self._condition:
            lost = [*self._running, *self._waiting]
            self._running = []
            self._waiting.clear()
            self._cache = PrefixCache(self._engine, self.limits.kept_tokens)
            self._metrics.running = self._metrics.waiting = 0
            self._metrics.engine_errors += 1
        self._tell([(job, engine_failed()) for job in lost])

    def _admit(self) -> bool:
        """Drop who left, wait for work, give out slots; False when the scheduler is closed."""
        with self._condition:
            self._retire({id(job) for job in self._running if job.ticket.cancelled})
            while not (self._waiting or self._running or self._closing):
                self._condition.wait()
            if self._closing:
                unfinished = [*self._running, *self._waiting]
                self._deliver([(job, shutting_down()) for job in unfinished])
                return False
            while self._waiting and len(self._running) < self._at_once:
                job = self._waiting.popleft()
                self._metrics.queue_wait.observe(time.perf_counter() - job.answer.submitted)
                self._running.append(job)
            self._metrics.waiting = len(self._waiting)
            self._metrics.running = len(self._running)
        return True

    def _step(self, batch: Sequence[_Job]) -> list[tuple[_Job, Event]]:
        chunks, by_slot, read = self._plan(batch)
        result = self._engine.step(chunks)
        for answer in read:
            if answer.generation.cache_prompt:
                self._cache.share(answer.slot, answer.generation.prompt)
        now = time.perf_counter()
        self._metrics.steps += 1
        events: list[tuple[_Job, Event]] = []
        logits, greedy = result.logits, result.greedy.tolist()
        for row, (slot, position) in enumerate(result.rows):
            job = by_slot[slot]
            # Failed on an earlier row of this step, or went another way than was guessed.
            if job.failed or position >= job.answer.position:
                continue
            try:
                event = self._row(job.answer, position, logits[row], greedy[row], now)
                self._go_on(job, event)
            except ApiError as error:  # this answer cannot go on; those beside it can
                event = error
            except Exception:  # nor can this one; the engine has done its part for all of them
                logger.exception("an answer failed on its row; the rest of the batch goes on")
                job.failed = True
                event = answer_failed()
            if event is not None:
                events.append((job, event))
        return events

    def _go_on(self, job: _Job, event: Event | None) -> None:
        """Take the next guess as written where an answer chose it."""
        if not isinstance(event, Delta):
            return
        answer = job.answer
        right = bool(job.guess) and job.guess[0] == answer.last
        self._metrics.accepted_tokens += right
        if job.text is not None:
            job.text.tokens.append(answer.last)
        if right and not event.finish:
            job.fed.append(job.guess.pop(0))
            answer.position += 1
        else:
            job.guess.clear()

    def _row(
        self, answer: Answer, position: int, logits: NDArray[np.float32], argmax: int, now: float
    ) -> Event | None:
        if position + 1 < len(answer.generation.prompt):
            answer.prompt_row(position, logits, argmax)
            return None
        delta = answer.token_row(logits, argmax)
        self._observe(answer, delta, now)
        return delta

    def _plan(self, batch: Sequence[_Job]) -> tuple[list[Chunk], dict[int, _Job], list[Answer]]:
        """Return the step's chunks, whose slot is whose, and whose prompts are through after it."""
        chunks: list[Chunk] = []
        reading: list[Answer] = []
        read: list[Answer] = []
        self._guess([job for job in batch if job.answer.prefilled])
        for job in batch:
            answer = job.answer
            if answer.prefilled:
                wanted: Literal["none", "last", "all"] = "all" if job.guess else "last"
                chunks.append(Chunk(answer.slot, answer.position, (answer.last, *job.guess), wanted))
                job.fed.append(answer.last)
                answer.position += 1
            else:
                reading.append(answer)
        budget = self.limits.prefill_mixed if chunks else self.limits.prefill_alone
        for index, answer in enumerate(reading):
            if budget == 0:
                break
            if answer.slot < 0 and not self._begin(answer, reading[:index]):
                continue
            prompt = answer.generation.prompt
            scored = answer.generation.scored
            take = min(budget, self.limits.prefill_scored) if scored else budget
            end = min(answer.position + take, len(prompt))
            wanted = "last" if end == len(prompt) else "none"
            if scored:
                wanted = "all"
            chunks.append(Chunk(answer.slot, answer.position, prompt[answer.position : end], wanted))
            budget -= end - answer.position
            answer.position = end
            if answer.prefilled:
                read.append(answer)
        return chunks, {job.answer.slot: job for job in batch}, read

    def _guess(self, batch: Sequence[_Job]) -> None:
        """Have the guesser propose how answers go on; one that fails is not asked again."""
        if self._guesser is None or not batch:
            return
        texts = []
        for job in batch:
            answer = job.answer
            job.guess = []
            if job.text is None:
                job.text = Text(answer.slot, [*answer.generation.prompt, answer.last])
            job.text.most = max(
                0,
                min(
                    self.limits.guesses,
                    answer.generation.max_tokens - answer.generated - 1,
                    self._engine.context - answer.position - 1,
                    self._engine.ahead(answer.position),
                ),
            )
            texts.append(job.text)
        try:
            guesses = self._guesser.guess(texts)
        except Exception:
            logger.exception("the guesser failed; answers go on without it")
            self._guesser = None
            return
        for job, guess in zip(batch, guesses, strict=True):
            job.guess = guess
            self._metrics.drafted_tokens += len(guess)

    def _begin(self, answer: Answer, earlier: Sequence[Answer]) -> bool:
        """Give an answer a slot; False where it had better wait for what an earlier prompt leaves it."""
        generation = answer.generation
        use = generation.cache_prompt and not generation.scored
        if use and earlier:
            enough = self._cache.match(generation.prompt) + self.limits.worth_waiting
            for other in earlier:
                theirs = other.generation
                if theirs.cache_prompt and common_tokens(generation.prompt, theirs.prompt) >= enough:
                    return False
        answer.slot, answer.cached_tokens = self._cache.begin(generation.prompt, use=use)
        answer.position = answer.cached_tokens
        return True

    def _observe(self, answer: Answer, delta: Delta, now: float) -> None:
        metrics = self._metrics
        if answer.seen is None:
            metrics.prompt_tokens += len(answer.generation.prompt)
            metrics.cached_tokens += answer.cached_tokens
            metrics.ttft.observe(now - answer.submitted)
        else:
            metrics.itl.observe(now - answer.seen)
        answer.seen = now
        metrics.generated_tokens += 1 if delta.generated else 0

    def _deliver(self, events: Sequence[tuple[_Job, Event]]) -> None:
        """Free the slots of what has ended and hand every event to its event loop in one call."""
        ended = {id(job) for job, event in events if isinstance(event, ApiError) or event.finish}
        with self._condition:
            self._retire(ended)
        self._tell(events)

    def _tell(self, events: Sequence[tuple[_Job, Event]]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Ticket, Event]]] = {}
        for job, event in events:
            if not job.ticket.cancelled:
                by_loop.setdefault(job.ticket.loop, []).append((job.ticket, event))
        for loop, items in by_loop.items():
            try:
                loop.call_soon_threadsafe(_hand_over, items)
            except RuntimeError:  # the loop closed: nobody is left to tell
                logger.warning("the event loop closed with %d answers under way", len(items))

    def _retire(self, ended: set[int]) -> None:
        """Give back the slots of the jobs in `ended`; the caller holds the condition."""
        if not ended:
            return
        for job in self._running:
            if id(job) in ended and job.answer.slot >= 0:
                self._cache.end(job.answer.slot, job.held(), more=job.text is not None)
        self._running = [job for job in self._running if id(job) not in ended]
        self._metrics.running = len(self._running)


def _hand_over(items: Sequence[tuple[Ticket, Event]]) -> None:
    for ticket, event in items:
        ticket.events.put_nowait(event)
