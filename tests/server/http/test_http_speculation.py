"""Guesses change no answer: whatever is proposed, every delta's sum is what plain decoding gives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import speculation
from server.engine import Chunk, Engine, EngineError, StepResult
from server.errors import ApiError
from server.generation import Answer, Delta, Generation
from server.metrics import Metrics
from server.radix import common_tokens
from server.sampling import Sampling
from server.scheduler import Limits, Scheduler, Stepper
from server.speculation import MOST_GUESSES, Guesser, ModelGuesser, NgramGuesser, Text
from server.tokenizer import Tokenizer
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen35
from tests.server.http.running import Command, command_server, toy_server
from tests.server.http.toy import VOCABULARY, ToyEngine, ids, metadata

TOKENIZER = Tokenizer(metadata())
GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=0.9, top_p=0.95, presence_penalty=0.5)


@dataclass(frozen=True)
class Said:
    """All that a client is told of a choice, put together."""

    text: str
    finish: str | None
    generated: int
    logprobs: tuple[object, ...]


def answers(
    engine: Stepper, limits: Limits, guesser: Guesser | None, asked: Sequence[Generation]
) -> list[Said]:
    """Run generations side by side through a scheduler of their own."""
    return counted(engine, limits, guesser, asked)[0]


def counted(
    engine: Stepper, limits: Limits, guesser: Guesser | None, asked: Sequence[Generation]
) -> tuple[list[Said], Metrics]:
    metrics = Metrics()
    scheduler = Scheduler(engine, TOKENIZER, metrics, limits, guesser)
    scheduler.start()

    async def collect() -> list[Said]:
        ticket = scheduler.submit(asked)
        deltas: list[list[Delta]] = [[] for _ in asked]
        while any(not each or each[-1].finish is None for each in deltas):
            event = await asyncio.wait_for(ticket.events.get(), 60)
            assert isinstance(event, Delta), event if isinstance(event, ApiError) else "no answer"
            assert not deltas[event.choice] or deltas[event.choice][-1].finish is None
            deltas[event.choice].append(event)
        return [
            Said(
                "".join(each.text for each in choice),
                choice[-1].finish,
                choice[-1].generated,
                tuple(logprob for each in choice for logprob in each.logprobs),
            )
            for choice in deltas
        ]

    try:
        return asyncio.run(collect()), metrics
    finally:
        scheduler.close()


class Prophet:
    """Knows what will be said, and lies from a guess on that `lies` chooses."""

    def __init__(self, truth: dict[tuple[int, ...], list[int]], lies: Sequence[int]) -> None:
        self._truth = truth
        self._lies = lies
        self._asked = 0

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        guesses = []
        for text in texts:
            self._asked += 1
            honest = self._lies[self._asked % len(self._lies)] if self._lies else text.most
            prompt = next(each for each in self._truth if tuple(text.tokens[: len(each)]) == each)
            after = self._truth[prompt][len(text.tokens) - len(prompt) :][: text.most]
            guesses.append([t if i < honest else (t + 1) % VOCABULARY for i, t in enumerate(after)])
        return guesses


class Careful(ToyEngine):
    """A toy that keeps a state: it can be taken back a little, and tells when that is overdone."""

    chunk, window = 16, 4

    def __init__(self, slots: int = 4, context: int = 256) -> None:
        super().__init__(slots, context)
        self._base = [0] * slots
        self._end = [0] * slots

    def rewindable(self, slot: int) -> int:
        return max(self._base[slot], self._end[slot] - self.window)

    def ahead(self, position: int) -> int:
        return min(self.window, self.chunk - 1 - position % self.chunk)

    def fork(self, source: int, slot: int, positions: int) -> None:
        assert positions == 0 or positions >= self.rewindable(source), "a state of long ago"
        super().fork(source, slot, positions)
        self._base[slot] = self._base[source] if positions else 0
        self._end[slot] = positions

    def step(self, chunks: Sequence[Chunk]) -> StepResult:
        for chunk in chunks:
            assert chunk.position == 0 or chunk.position >= self.rewindable(chunk.slot), "too far back"
            end = chunk.position + len(chunk.tokens)
            base = self._base[chunk.slot] if chunk.position else 0
            self._base[chunk.slot] = max(base, (end - 1) // self.chunk * self.chunk)
            self._end[chunk.slot] = end
        return super().step(chunks)


prompts = st.lists(st.sampled_from(ids(b"ab")), min_size=1, max_size=40).map(tuple)
asks = st.builds(
    Generation,
    prompt=prompts,
    max_tokens=st.integers(1, 40),
    sampling=st.sampled_from([GREEDY, SEEDED]),
    seed=st.integers(0, 3),
    choice=st.integers(0, 1),
    stops=st.sampled_from([(), (b"a",), (b"qq", b"z")]),
    top_logprobs=st.sampled_from([None, 0, 2]),
    ignore_end=st.booleans(),
)


def truth(engine: Stepper, asked: Generation) -> list[int]:
    """The tokens of an answer, one after the other, chosen without a scheduler."""
    answer = Answer(asked, 0, TOKENIZER, slot=0)
    tokens: list[int] = []
    fed: Sequence[int] = asked.prompt
    position = 0
    while True:
        result = engine.step([Chunk(0, position, tuple(fed), "last")])
        position += len(fed)
        delta = answer.token_row(result.logits[0], int(result.greedy[0]))
        tokens.append(answer.last)
        if delta.finish:
            return tokens
        fed = (answer.last,)


@pytest.mark.parametrize("kind", [ToyEngine, Careful])
@settings(max_examples=40, deadline=None)
@given(
    asked=st.lists(asks, min_size=1, max_size=3, unique_by=lambda each: each.prompt),
    lies=st.lists(st.integers(0, 6), max_size=5),
    most=st.integers(1, MOST_GUESSES),
    kept=st.sampled_from([0, 60]),
)
def test_any_guesses_leave_every_answer_as_it_was(
    kind: Callable[[], ToyEngine], asked: list[Generation], lies: list[int], most: int, kept: int
) -> None:
    # No prompt may begin another, or the prophet could not tell them apart.
    asked = [
        Generation(**{**fields(each), "prompt": (*each.prompt, index)}) for index, each in enumerate(asked)
    ]
    known = {each.prompt: truth(ToyEngine(), each) for each in asked}
    limits = Limits(prefill_alone=7, prefill_mixed=5, kept_slots=1 if kept else 0, kept_tokens=kept)
    plain = answers(kind(), limits, None, asked)
    guessing = Limits(**{**fields(limits), "guesses": most})
    guessed, metrics = counted(kind(), guessing, Prophet(known, lies), asked)
    assert guessed == plain
    assert 0 <= metrics.accepted_tokens <= metrics.drafted_tokens
    assert metrics.generated_tokens == sum(each.generated for each in plain)
    if not lies and kind is ToyEngine:
        assert metrics.accepted_tokens == metrics.drafted_tokens, "the prophet was right every time"


def fields(value: Generation | Limits) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 59))
def test_an_ngram_guess_is_what_followed_the_longest_run_the_latest_time(
    tokens: list[int], most: int, first: int
) -> None:
    def plain() -> list[int]:
        for size in range(min(4, len(tokens)), 1, -1):
            for place in range(len(tokens) - 1, size - 1, -1):
                if tokens[place - size : place] == tokens[-size:]:
                    return tokens[place : place + most]
        return []

    guesser = NgramGuesser()
    grown = tokens[:first]
    text = Text(3, grown, most)
    guesser.guess([text])  # what it knows grows with the text
    grown.extend(tokens[first:])
    assert guesser.guess([text]) == [plain()]
    assert guesser.guess([Text(3, [0, 1], most)]) == [[]], "another text in the same slot"


def said(tokens: list[int], most: int) -> list[int]:
    """What the toy says behind some tokens, one after the other."""
    engine, guess = ToyEngine(), list[int]()
    for _ in range(most):
        guess += engine.step([Chunk(0, 0, (*tokens, *guess), "last")]).greedy.tolist()
    return guess


@pytest.mark.parametrize("kind", [ToyEngine, Careful])
@settings(max_examples=60, deadline=None)
@given(
    growth=st.lists(st.tuples(st.integers(0, 3), st.booleans(), prompts), min_size=1, max_size=5),
    most=st.integers(1, 4),
)
def test_a_small_model_guesses_what_it_would_say_itself(
    kind: Callable[..., ToyEngine], growth: list[tuple[int, bool, tuple[int, ...]]], most: int
) -> None:
    guesser = ModelGuesser(kind(slots=2))
    texts = [Text(slot, ids(b"ab"), most) for slot in range(4)]  # more of them than it has slots
    for slot, other, more in growth:
        if other:
            texts[slot] = Text(slot, list(more), most)
        else:
            texts[slot].tokens.extend(more)
        beside = texts[slot - 1]
        assert guesser.guess([texts[slot], beside]) == [
            said(each.tokens, most) for each in (texts[slot], beside)
        ]


def test_of_a_long_text_that_grows_only_what_is_new_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[int] = []

    def counted_whole(held: Sequence[int], tokens: Sequence[int]) -> int:
        whole.append(len(tokens))
        return common_tokens(held, tokens)

    monkeypatch.setattr(speculation, "common_tokens", counted_whole)
    guesser, text = ModelGuesser(ToyEngine()), Text(0, ids(b"ab" * 40), 3)
    for token in ids(b"say abba"):
        text.tokens.append(token)
        assert guesser.guess([text]) == [said(text.tokens, 3)]
    assert whole == [81]


def test_a_guesser_that_fails_is_left_out_and_answers_go_on() -> None:
    class Failing:
        def guess(self, texts: Sequence[Text]) -> list[list[int]]:
            raise EngineError("the small model is gone")

    asked = [Generation((*ids(b"abc"),), 12, GREEDY, 0, 0, ignore_end=True)]
    limits = Limits(guesses=4)
    assert answers(ToyEngine(), limits, Failing(), asked) == answers(ToyEngine(), limits, None, asked)


@contextmanager
def tiny(model: TinyModel, folder: Path, slots: int = 4) -> Iterator[Engine]:
    path = folder / f"{model.architecture}-{model.seed}.gguf"
    if not path.exists():
        model.write(path)
    with Engine(path, slots=slots, threads=2) as engine:
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [TinyModel(vocabulary=VOCABULARY), TinyQwen35(vocabulary=VOCABULARY)], ids=["llama", "qwen35"]
)
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_real_engine_gives_the_same_bytes_with_each_guesser(
    model: TinyModel, sampling: Sampling, tmp_path: Path
) -> None:
    texts = [ids(b"the cat sat on the mat, the cat sat on"), ids(b"abcabcabcabc" * 9), ids(b"x")]
    asked = [
        Generation(tuple(each), 90, sampling, 5, index, top_logprobs=1, ignore_end=True)
        for index, each in enumerate(texts)
    ]
    limits = Limits(kept_slots=1, kept_tokens=400, prefill_alone=50, prefill_mixed=30, guesses=6)
    with tiny(model, tmp_path) as engine:
        plain = answers(engine, limits, None, asked)
    with tiny(model, tmp_path) as engine:
        guessed, metrics = counted(engine, limits, NgramGuesser(), asked)
    assert guessed == plain
    assert metrics.drafted_tokens > 0
    for seed in (model.seed, model.seed + 1):
        other = type(model)(vocabulary=VOCABULARY, seed=seed)
        with tiny(model, tmp_path) as engine, tiny(other, tmp_path, slots=3) as small:
            guessed, metrics = counted(engine, limits, ModelGuesser(small), asked)
        assert guessed == plain
        assert metrics.drafted_tokens > 0
        if seed == model.seed and sampling is GREEDY:
            assert metrics.accepted_tokens == metrics.drafted_tokens, "the same model guesses itself"


def test_what_was_guessed_is_counted_for_everybody_to_see() -> None:
    words = "say:over and over and over and over and over"
    body = {"model": "toy", "messages": [{"role": "user", "content": words}], "temperature": 0}
    with toy_server(limits=Limits(guesses=4), guesser=NgramGuesser()) as toy:
        answer = httpx.post(f"{toy.url}/v1/chat/completions", json=body, timeout=60).json()
        steps = toy.metric("assay_engine_steps_total")
        assert toy.metric("assay_drafted_tokens_total") > toy.metric("assay_accepted_tokens_total") > 0
    assert answer["choices"][0]["message"]["content"] == words.removeprefix("say:")
    assert steps < answer["usage"]["completion_tokens"], "several tokens a step"


@pytest.fixture(scope="module")
def speculating(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    folder = tmp_path_factory.mktemp("speculating")
    words = ("--speculate", str(model_path), "--draft-tokens", "3", "--slots", "2", "--context", "512")
    with command_server(model_path, folder, *words, "--name", "m") as running:
        yield running


@pytest.mark.slow
def test_the_command_serves_with_a_small_model_and_says_so(speculating: Command) -> None:
    settings_said = httpx.get(f"{speculating.url}/identity").json()["settings"]
    assert settings_said["speculation"]["kind"] == "model"
    assert settings_said["speculation"]["draft_tokens"] == 3
    body = {"model": "m", "prompt": "The ferry left", "max_tokens": 24, "temperature": 0}
    answer = httpx.post(f"{speculating.url}/v1/completions", json=body, timeout=120).json()
    assert answer["usage"]["completion_tokens"] == 24
    page = httpx.get(f"{speculating.url}/metrics").text
    drafted, accepted = (
        next(
            float(line.split()[-1])
            for line in page.splitlines()
            if line.startswith(f"assay_{name}_tokens_total")
        )
        for name in ("drafted", "accepted")
    )
    assert drafted == accepted > 12, "it guesses itself"


@pytest.mark.slow
def test_a_small_model_of_another_vocabulary_is_refused(model_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    TinyModel().write(other)
    words = [sys.executable, "-m", "server", str(model_path), "--port=0", f"--speculate={other}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    assert "its vocabulary is not the model's" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--draft-tokens=4"], "--speculate is not given"),
        (["--speculate=ngram", "--draft-tokens=17"], "a step proposes 1 to 16"),
        (["--speculate=nowhere.gguf"], "there is no such file"),
    ],
)
def test_what_cannot_be_guessed_with_is_refused_by_name(
    words: list[str], said: str, model_path: Path
) -> None:
    command = [sys.executable, "-m", "server", str(model_path), "--port=0", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (2, 3)
    assert said in done.stderr
