"""The radix tree against a plain search, and the prefix cache against slots that are lists."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine import EngineError
from server.prefix import SHORTEST_MATCH, PrefixCache
from server.radix import RadixTree, common_tokens

sequences = st.lists(st.integers(0, 2), max_size=40)


def plain_common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.none() | sequences), max_size=30), sequences)
def test_the_tree_finds_what_a_search_of_every_slot_finds(
    changes: list[tuple[int, list[int] | None]], wanted: list[int]
) -> None:
    tree, held = RadixTree(), dict[int, list[int]]()
    for slot, tokens in changes:
        if tokens is None:
            tree.remove(slot)
            held.pop(slot, None)
        else:
            tree.insert(slot, tokens)
            held[slot] = tokens
    best = max((plain_common(tokens, wanted) for tokens in held.values()), default=0)
    slot, length = tree.longest(wanted)
    assert length == best
    assert slot == min((s for s, t in held.items() if best and plain_common(t, wanted) == best), default=-1)
    assert {s: tree.length(s) for s in held} == {s: len(t) for s, t in held.items()}
    for slot in held:
        tree.remove(slot)
    assert tree.longest(wanted) == (-1, 0)


@given(sequences, sequences)
def test_common_tokens(a: list[int], b: list[int]) -> None:
    assert common_tokens(a, b) == plain_common(a, b)


class Lists:
    """Slots that are lists of the tokens fed to them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.held: list[list[int]] = [[] for _ in range(slots)]

    def fork(self, source: int, slot: int, positions: int) -> None:
        assert 0 <= positions <= len(self.held[source])
        self.held[slot] = self.held[source][:positions]

    def rewindable(self, slot: int) -> int:
        return 0


requests = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=60), st.booleans(), st.integers(0, 3)),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(requests, st.integers(0, 200))
def test_a_slot_holds_the_prefix_it_is_said_to_hold(
    requests: list[tuple[list[int], bool, int]], kept: int
) -> None:
    engine = Lists(4)
    cache = PrefixCache(engine, kept)
    busy: list[tuple[int, list[int]]] = []
    for prompt, use, ending in requests:
        if len(busy) == 3:  # one slot more than answers at once
            slot, tokens = busy.pop(ending % 3)
            cache.end(slot, [] if ending == 3 else tokens)
        slot, length = cache.begin(prompt, use=use)
        assert slot not in [other for other, _ in busy]
        assert engine.held[slot] == prompt[:length]
        assert length == 0 or (use and SHORTEST_MATCH <= length < len(prompt))
        engine.held[slot] = list(prompt)
        if ending:
            cache.share(slot, prompt)
        busy.append((slot, prompt))
        assert all(engine.held[other] == tokens for other, tokens in busy)
    for slot, tokens in busy:
        cache.end(slot, tokens)
    assert sum(len(tokens) for tokens in engine.held) <= kept


def test_the_same_prompt_again_and_its_continuation_are_found() -> None:
    engine = Lists(3)
    cache = PrefixCache(engine, 1000)
    prompt = list(range(100))
    first, length = cache.begin(prompt, use=True)
    assert length == 0
    engine.held[first] = [*prompt, 7, 8]
    cache.end(first, engine.held[first])
    again, length = cache.begin(prompt, use=True)
    assert (again != first, length) == (True, 99)  # the last token is always computed, the first answer kept
    longer, length = cache.begin([*prompt, 7, 8, 9], use=True)
    assert (longer, length) == (first, 102)  # goes on where the first answer ended
    cold, length = cache.begin(prompt, use=False)
    assert (length, engine.held[cold]) == (0, [])


class Stateful(Lists):
    """Lists of a model with a state: only the last two lengths, or none, can be gone back to."""

    def fork(self, source: int, slot: int, positions: int) -> None:
        assert positions == 0 or positions >= self.rewindable(source), "a state of long ago"
        super().fork(source, slot, positions)

    def rewindable(self, slot: int) -> int:
        return max(0, len(self.held[slot]) - 2)


def test_a_prompt_is_found_again_where_the_answer_has_moved_the_state_on() -> None:
    engine = Stateful(4)
    cache = PrefixCache(engine, 1000)
    prompt = list(range(100))
    first, _ = cache.begin(prompt, use=True)
    engine.held[first] = list(prompt)
    cache.share(first, prompt)
    engine.held[first] += [7] * 50
    again, length = cache.begin(prompt, use=True)
    assert (again != first, length) == (True, 99), "from the copy that was kept while the answer went on"
    longer, length = cache.begin([*prompt, 7, 7, 7, 8], use=True)
    assert length in (0, 100), "nothing between the prompt and the answer's end can be had"
    for slot in (first, again, longer):
        cache.end(slot, engine.held[slot])
    whole, length = cache.begin([*prompt, *[7] * 50, 9], use=True)
    assert (whole, length) == (first, 150), "goes on where the answer ended"


@settings(max_examples=200, deadline=None)
@given(requests, st.integers(0, 200))
def test_slots_with_a_state_are_never_asked_for_what_they_cannot_give(
    requests: list[tuple[list[int], bool, int]], kept: int
) -> None:
    engine = Stateful(4)
    cache = PrefixCache(engine, kept)
    busy: list[tuple[int, list[int]]] = []
    for prompt, use, ending in requests:
        if len(busy) == 2:  # two slots more than answers at once
            slot, tokens = busy.pop(ending % 2)
            cache.end(slot, [] if ending == 3 else tokens)
        slot, length = cache.begin(prompt, use=use)
        assert engine.held[slot] == prompt[:length]
        engine.held[slot] = list(prompt)
        cache.share(slot, prompt)
        idle = [each for each in range(4) if each != slot and each not in [other for other, _ in busy]]
        assert sum(len(engine.held[each]) for each in idle) <= kept
        engine.held[slot] += [2] * ending
        busy.append((slot, list(engine.held[slot])))


class Failing(Lists):
    """Lists that fail to fork when told so."""

    fails = False

    def fork(self, source: int, slot: int, positions: int) -> None:
        if self.fails:
            self.held[slot] = [-1]
            raise EngineError("the device is gone")
        super().fork(source, slot, positions)


def test_a_fork_that_fails_loses_no_slot_and_leaves_nothing_to_be_found() -> None:
    engine = Failing(2)
    cache = PrefixCache(engine, 1000)
    prompt = list(range(20))
    for _ in range(5):
        engine.fails = True
        with pytest.raises(EngineError, match="gone"):
            cache.begin(prompt, use=True)
        engine.fails = False
        slots = [cache.begin(prompt, use=True) for _ in range(2)]
        assert sorted(slots) == [(0, 0), (1, 0)]
        for slot, _ in slots:
            engine.held[slot] = list(prompt)
            cache.end(slot, prompt)
        # The next failure is that of a slot that goes on with what it keeps.
        prompt = [*prompt, *range(20)]
        engine.fails = True
        with pytest.raises(EngineError, match="gone"):
            cache.begin(prompt, use=True)
        with pytest.raises(EngineError, match="gone"):
            cache.begin(prompt, use=True)
        engine.fails = False
        assert cache.match(prompt) == 0
        prompt = [each + 100 for each in prompt]


def test_the_least_recently_used_is_forgotten_first() -> None:
    engine = Lists(3)
    cache = PrefixCache(engine, 50)
    for start in (0, 100, 200):
        prompt = list(range(start, start + 20))
        slot, _ = cache.begin(prompt, use=True)
        engine.held[slot] = prompt
        cache.end(slot, prompt)
    assert sorted(len(tokens) for tokens in engine.held) == [0, 20, 20]
    assert cache.begin([*range(20), 1], use=True)[1] == 0
    assert cache.begin([*range(200, 220), 1], use=True)[1] == 20
