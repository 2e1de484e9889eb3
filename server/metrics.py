"""Counters and histograms in Prometheus' text form.

TTFT is from a choice's submission to its first token in the engine thread, ITL the gap between its tokens
there. Each number is written by one thread only (the engine's or the event loop's), so none needs a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

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

    def lines(self, name: str) -> list[str]:
        """Return the sample lines under `name`, cumulative as the format wants."""
        out, total = [], 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            out.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*out, f"{name}_sum {self._sum:.9g}", f"{name}_count {total}"]


@dataclass(slots=True)
class Metrics:
    """All that `/metrics` shows."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    engine_errors: int = 0
    running: int = 0
    waiting: int = 0
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # (route, HTTP status)
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BOUNDS))

    def render(self) -> str:
        """Return the whole page."""
        numbers = (
            ("assay_prompt_tokens_total", "counter", "Prompt tokens read.", self.prompt_tokens),
            ("assay_generation_tokens_total", "counter", "Tokens generated.", self.generated_tokens),
            ("assay_engine_steps_total", "counter", "Batches run.", self.steps),
            ("assay_engine_errors_total", "counter", "Batches that failed.", self.engine_errors),
            ("assay_requests_running", "gauge", "Choices that hold a slot.", self.running),
            ("assay_requests_waiting", "gauge", "Choices that wait for a slot.", self.waiting),
        )
        lines: list[str] = []
        for name, kind, text, value in numbers:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        lines += ["# HELP assay_requests_total Requests answered.", "# TYPE assay_requests_total counter"]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'assay_requests_total{{route="{route}",status="{status}"}} {count}')
        for name, text, histogram in (
            ("assay_time_to_first_token_seconds", "Submission to first token.", self.ttft),
            ("assay_inter_token_latency_seconds", "Gap between two tokens of a choice.", self.itl),
        ):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram", *histogram.lines(name)]
        return "\n".join(lines) + "\n"
