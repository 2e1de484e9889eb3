"""From one row of logits to one token, and to log-probabilities.

Everything is float64, in a fixed order, and every tie goes to the lowest id, so a choice depends on its
own logits, parameters and seed and on nothing that runs beside it. The random numbers are Philox's (a
counter-based generator), keyed by (seed, choice): one uniform number a token.

Order: logit bias and penalties, the grammar's mask, then temperature, top-k, top-p, min-p. Penalties are
OpenAI's: `logit - presence * [count > 0] - frequency * count` with counts over the answer's own tokens.
Log-probabilities are of the model, before all of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.random import Generator, Philox  # by name: numpy would import them with the first draw
from numpy.typing import NDArray

Float = NDArray[np.float64]
Ids = NDArray[np.int64]

# How many of the likeliest are looked at for a top-p set before all are: most sets are small.
NUCLEUS_TRIALS = (128, 1024)
BLOCK = 256  # weights that are summed before they are looked at one by one


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen; the defaults are neutral."""

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def adjusts(self) -> bool:
        """Whether the logits are changed before the choice."""
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty)

    @property
    def is_argmax(self) -> bool:
        """Whether the engine's own argmax is the answer."""
        return self.temperature == 0 and not self.adjusts


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability (None: the first of a prompt) and the likeliest alternatives."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """The choices of one answer: parameters, random stream and the counts that penalties need."""

    def __init__(self, sampling: Sampling, seed: int, choice: int) -> None:
        """Start the stream keyed by `seed` and `choice`, both taken modulo 2**64."""
        self._sampling = sampling
        self._key = (seed % 2**64, choice % 2**64)
        self._random: Generator | None = None  # made with the first draw
        self._counts: dict[int, int] = {}
        bias = sampling.logit_bias
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        self._bias = np.fromiter(bias.values(), np.float64, len(bias))

    def choose(self, logits: NDArray[np.float32], argmax: int, allowed: Ids | None = None) -> int:
        """Return the next token.

        Args:
            logits: float32 [vocabulary], not changed.
            argmax: the engine's own greedy choice for the row.
            allowed: the ids that may be chosen, ascending and at least one; None: all.
        """
        sampling = self._sampling
        if allowed is None and sampling.is_argmax:
            return argmax
        scores = logits.astype(np.float64)
        if sampling.adjusts:
            self._adjust(scores)
        if allowed is not None:
            scores = scores[allowed]
        place = int(np.argmax(scores)) if sampling.temperature == 0 else self._draw(scores)
        token = place if allowed is None else int(allowed[place])
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts[token] = self._counts.get(token, 0) + 1
        return token

    def _adjust(self, scores: Float) -> None:
        scores[self._bias_ids] += self._bias
        for token, count in self._counts.items():
            scores[token] -= self._sampling.presence_penalty + self._sampling.frequency_penalty * count

    def _draw(self, scores: Float) -> int:
        sampling = self._sampling
        # The maximum first: a tiny temperature then underflows to greedy instead of overflowing.
        scores -= scores.max()
        scores /= sampling.temperature
        ids: Ids | None = None
        if 0 < sampling.top_k < scores.size:
            ids = top_ids(scores, sampling.top_k)
            scores = scores[ids]
        weights = np.exp(scores)
        if sampling.top_p < 1:
            kept = _nucleus(scores, weights, sampling.top_p, ordered=ids is not None)
            ids, weights = kept if ids is None else ids[kept], weights[kept]
        if sampling.min_p > 0:
            weights[weights < sampling.min_p * weights.max()] = 0.0
        if self._random is None:
            self._random = Generator(Philox(key=np.array(self._key, np.uint64)))
        place = pick(weights, self._random.random())
        return place if ids is None else int(ids[place])


def pick(weights: Float, share: float) -> int:
    """Return the first index at which the running sum of `weights` passes `share` of the whole.

    Summed block by block, so that only one block's running sum is needed.

    Args:
        weights: none negative, at least one positive.
        share: from 0 up to, but not, 1.
    """
    whole = weights.size - weights.size % BLOCK
    sums = weights[:whole].reshape(-1, BLOCK).sum(axis=1)
    mass = np.cumsum(np.append(sums, weights[whole:].sum()))
    mark = share * mass[-1]
    block = int(np.searchsorted(mass, mark, side="right"))
    if block < mass.size:
        inside = np.cumsum(weights[block * BLOCK : (block + 1) * BLOCK])
        before = mass[block - 1] if block else 0.0
        place = int(np.searchsorted(inside, mark - before, side="right"))
        if place < inside.size:
            return block * BLOCK + place
        end = block * BLOCK + inside.size
    else:
        end = weights.size
    # Rounding can put the mark on the very end; the last one with weight is meant.
    return int(np.flatnonzero(weights[:end])[-1])


def top_ids(scores: Float, count: int) -> Ids:
    """Return the `count` highest-scored ids, best first, ties by lowest id."""
    rows = scores.size // (4 * count)
    if rows < 2:
        return _top(scores, count)
    # `count` of the columns' maxima reach the limit, so whatever is among the best does.
    columns = scores.size // rows
    best = scores[: rows * columns].reshape(rows, columns).max(axis=0)
    near = np.flatnonzero(scores >= np.partition(best, columns - count)[columns - count])
    return near[_top(scores[near], count)]


def _top(scores: Float, count: int) -> Ids:
    if count >= scores.size:
        return np.argsort(-scores, kind="stable")
    limit = np.partition(scores, scores.size - count)[scores.size - count]
    above = np.flatnonzero(scores > limit)
    chosen = np.concatenate([above, np.flatnonzero(scores == limit)[: count - above.size]])
    chosen.sort()
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _nucleus(scores: Float, weights: Float, top_p: float, *, ordered: bool) -> Ids:
    """Return the places of the smallest set of likeliest tokens whose probability reaches `top_p`."""
    enough = top_p * float(weights.sum())
    if ordered:  # top-k has sorted them
        order = np.arange(scores.size)
    else:
        for count in (*NUCLEUS_TRIALS, scores.size):
            order = top_ids(scores, count)
            if count >= scores.size or float(weights[order].sum()) >= enough:
                break
    mass = np.cumsum(weights[order])
    return order[: int(np.searchsorted(mass, enough, side="left")) + 1]


def token_logprob(logits: NDArray[np.float32], token: int, top: int) -> TokenLogprob:
    """Return a token's log-softmax over the whole vocabulary, with the `top` likeliest beside it."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    best = top_ids(scores, top) if top else ()
    return TokenLogprob(token, float(scores[token]), tuple((int(i), float(scores[i])) for i in best))


def logprobs_of(logits: NDArray[np.float32], ids: Ids) -> NDArray[np.float32]:
    """Return the log-softmax over the whole vocabulary of `ids`, computed in float64, as float32."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    wanted = scores[ids]
    np.exp(scores, out=scores)
    wanted -= np.log(scores.sum())
    return wanted.astype(np.float32)
