"""Counters and histograms, shown in Prometheus' text form by its own client library.

The library's counters take a lock for every count; on the path of every token that is too much. Each number
here is written by one thread only (the engine's or the event loop's), so it needs none, and `collect` hands
all of them to the library when somebody asks.

Queue wait is from a choice's submission to its slot, TTFT from its submission to its first token in the
engine thread, ITL the gap between its tokens there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# Made once: it reads when the machine was started, which must not fail for want of a file descriptor. What it
# reads for each page it leaves out when it cannot.
PROCESS = ProcessCollector(registry=None)
WAIT_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TTFT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
ITL_BOUNDS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    """A histogram over fixed upper bounds, in seconds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start an empty histogram with `bounds`, ascending."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        """Return the library's form, cumulative as it wants it."""
        buckets: list[tuple[str, float]] = []
        total = 0
        # A copy: the engine thread may count meanwhile.
        for bound, count in zip((*map(str, self._bounds), "+Inf"), list(self._counts), strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


@dataclass(slots=True)
class Metrics:
    """All that `/metrics` shows."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    steps: int = 0
    engine_errors: int = 0
    running: int = 0
    waiting: int = 0
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # (route, HTTP status)
    queue_wait: Histogram = field(default_factory=lambda: Histogram(WAIT_BOUNDS))
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BOUNDS))

    def render(self) -> bytes:
        """Return the whole page, the process' own figures included."""
        registry = CollectorRegistry()
        registry.register(_Page(self))
        registry.register(PROCESS)
        return generate_latest(registry)


class _Page(Collector):
    """The metrics as the library collects them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text, value in (
            ("assay_prompt_tokens", "Prompt tokens of choices that began.", metrics.prompt_tokens),
            ("assay_prompt_tokens_cached", "Of these, tokens not computed again.", metrics.cached_tokens),
            ("assay_generation_tokens", "Tokens generated.", metrics.generated_tokens),
            ("assay_drafted_tokens", "Tokens that a guesser proposed.", metrics.drafted_tokens),
            ("assay_accepted_tokens", "Of these, tokens that were chosen.", metrics.accepted_tokens),
            ("assay_engine_steps", "Batches run.", metrics.steps),
            ("assay_engine_errors", "Batches that failed.", metrics.engine_errors),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily("assay_requests_running", "Choices that hold a slot.", metrics.running)
        yield GaugeMetricFamily("assay_requests_waiting", "Choices that wait for a slot.", metrics.waiting)
        requests = CounterMetricFamily("assay_requests", "Requests answered.", labels=("route", "status"))
        for (route, status), count in sorted(metrics.requests.items()):
            requests.add_metric((route, str(status)), count)
        yield requests
        for name, text, histogram in (
            ("assay_queue_wait_seconds", "Submission to a slot.", metrics.queue_wait),
            ("assay_time_to_first_token_seconds", "Submission to first token.", metrics.ttft),
            ("assay_inter_token_latency_seconds", "Gap between two tokens of a choice.", metrics.itl),
        ):
            yield histogram.family(name, text)
