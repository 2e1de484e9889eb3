"""What the engine has to reach, and what a peer has to reach to be worth comparing with: the numbers, once.

Contract: a floor is met by the figure itself; a figure that was not measured meets none. Ratios are speeds,
ours over the peer's, with 2 threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DECODE_CONTEXTS = (0, 512, 2048)
PREFILL_PROMPTS = (128, 512, 2048)

# Over llama.cpp, 2 threads.
DECODE_RATIO: Mapping[int, float] = {0: 2.2, 512: 2.5, 2048: 2.5}
PREFILL_RATIO: Mapping[int, float] = {128: 3.5, 512: 3.5, 2048: 3.0}
# Over ik_llama.cpp, 2 threads, every prefill length.
IK_PREFILL_RATIO = 1.5
# Decode at context 0 with 1 thread, as a share of that thread's reading roof.
ROOF_ONE_THREAD = 0.85
# Aims, told beside the floors and not gates: decode's share of the roof with 2 threads, prefill's of the
# peak.
ROOF_AIM = 0.90
PEAK_AIM = 0.80

# Eight sequences over one, at context 128; HTTP against the engine itself at one client.
BATCH_RATIO = 3.0
BATCH_HTTP_RATIO = 2.5
HTTP_LOSS = 0.03
TTFT_OVERHEAD_MS = 2.0

# Engine memory over the file's bytes, keys and values apart; and growth over 10,000 requests as a share of
# RSS.
MEMORY_RATIO = 1.15
RSS_GROWTH_SHARE = 0.01

# The coordinator by itself: mock samples a second; how its processor time may grow with their number (1 is
# linear); and its memory at a million samples over that at a hundred thousand.
COORDINATOR_RATE = 2000.0
COORDINATOR_EXPONENT = 1.1
COORDINATOR_GROWTH = 1.1

# Upper bound of mean KL over llama.cpp's.
KL_RATIO_BOUND = 1.05
# Of mean KL to exact arithmetic at any depth, weights in full precision, by form of keys and values.
DEPTH_KL: Mapping[str, float] = {"f16": 1e-5, "int8": 1e-3, "q4": 1e-1}
# By how much a digit of a number in a long prompt may be less likely than with halves, in nats.
NEEDLE_LOSS: Mapping[str, float] = {"f16": 0.0, "int8": 0.05, "q4": 0.5}


@dataclass(frozen=True)
class PeerBar:
    """The shares of a machine that llama.cpp reached where its speed was measured for reference.

    The reference machine (2 Zen 3 cores, AVX2) multiplied 62e9 bytes a second a core and read 20 to 21.3
    GB/s with two threads, 9 to 15 with one (`reference` of `bench.peak` is that multiplying loop).
    llama.cpp decoded 76 tokens/s at context 0 (134.5e6 multiply-adds and 96.4 MB each) with two threads and
    58 with one, and read prompts of 128, 512 and 2048 tokens (106.2e6 multiply-adds a token in the layers)
    at 191, 176 and 147 tokens/s, the lower of two series, or 123, 92 and 76 with one.

    Attributes:
        decode_read: Share of the reading roof, decode at context 0.
        decode_int8: Share of the reference loop's multiply-adds, the same.
        prefill_int8: Share of them by prompt length.
    """

    decode_read: float
    decode_int8: float
    prefill_int8: Mapping[int, float]


PEER_BARS: Mapping[int, PeerBar] = {
    1: PeerBar(0.373, 0.126, {128: 0.211, 512: 0.158, 2048: 0.130}),
    2: PeerBar(0.344, 0.082, {128: 0.164, 512: 0.151, 2048: 0.126}),
}
PEER_TOLERANCE = 0.10  # of the bar: as far apart lay two series on the reference machine itself
IMPOSSIBLE_SHARE = 1.05  # of the best roof seen in the run; above it the measurement is wrong


@dataclass(frozen=True)
class Verdict:
    """One floor and what was measured.

    Attributes:
        name: What is asked.
        floor: The number to reach, or not to exceed.
        measured: The figure; None when it was not measured.
        met: Whether it holds.
        bound_met: Whether the interval's worse end holds too; None without an interval.
    """

    name: str
    floor: float
    measured: float | None
    met: bool
    bound_met: bool | None = None


def at_least(name: str, floor: float, measured: float | None, low: float | None = None) -> Verdict:
    """A floor to reach; `low` is the figure's lower bound."""
    met = measured is not None and measured >= floor
    return Verdict(name, floor, measured, met, None if low is None else low >= floor)


def at_most(name: str, floor: float, measured: float | None, high: float | None = None) -> Verdict:
    """A limit not to exceed; `high` is the figure's upper bound."""
    met = measured is not None and measured <= floor
    return Verdict(name, floor, measured, met, None if high is None else high <= floor)


def peer_decode_bar(threads: int, read_roof: float, int8_peak: float, macs: float) -> float:
    """Tokens a second below which a peer's decode at context 0 voids the run.

    A step's time is a sum of parts, each bound by reading or by arithmetic, so on another machine its speed
    changes by a factor between those of the two resources: the bar is the smaller of both shares' speeds.

    Args:
        threads: 1 or 2.
        read_roof: Steps a second if only reading the weights took time.
        int8_peak: The reference loop's multiply-adds a second with so many threads.
        macs: Multiply-adds of one step.
    """
    bar = PEER_BARS[threads]
    return (1 - PEER_TOLERANCE) * min(bar.decode_read * read_roof, bar.decode_int8 * int8_peak / macs)


def peer_prefill_bar(threads: int, prompt: int, int8_peak: float, macs: float) -> float | None:
    """Tokens a second below which a peer's prefill voids the run; None for a length without a reference."""
    share = PEER_BARS[threads].prefill_int8.get(prompt)
    return None if share is None else (1 - PEER_TOLERANCE) * share * int8_peak / macs
