"""What one run of `bench.peers` found, judged: ratios, shares of the roofs, floors, and whether it is void.

Contract: judging is a function of the report's fields alone. `void` is why no figure counts: a peer below
its share of the machine, an A/A control with an effect, a side that computed while it was not asked, or a
figure above what the machine can do. Void is about the measurement, never about the engine.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from bench import floors
from bench.conduct import Figure
from bench.floors import Verdict
from bench.machine import Machine
from bench.paired import Comparison, control_is_void

LLAMA, IK = "llama.cpp", "ik_llama.cpp"
LEAD_THREADS = 2  # the floors' number
MOST_IDLE_SHARE = 0.05  # of a core, by a side that is not asked


@dataclass(frozen=True)
class Report:
    """One run.

    Attributes:
        taken: When it ended.
        command: Its words.
        quick: Whether it was the short form.
        seed: Of prompts and bootstraps.
        wall_s: Of the whole run.
        machine: What it ran on.
        load_before: The load averages.
        load_after: The same, afterwards.
        busy_before: Share of the cores' time in use before it began.
        steal_share: Share of the cores' time that other guests took during it.
        sides: What each side says of itself.
        missing: Peers that could not be opened, and why.
        broken: "peer, variant" that failed during the run, and why.
        figures: Ours against one peer on one shape.
        roofs: Our speeds on each shape with the reads around them.
        peaks: int8 multiply-adds a second by number of threads and kind (`bench.peak`).
        control: Our engine against itself.
        idle: Processor time of a side while others were measured, as a share of a core.
    """

    taken: str
    command: str
    quick: bool
    seed: int
    wall_s: float
    machine: Machine
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    busy_before: float
    steal_share: float
    sides: Mapping[str, Mapping[str, Any]]
    missing: Mapping[str, str]
    broken: Mapping[str, str]
    figures: tuple[Figure, ...]
    roofs: tuple[Mapping[str, Any], ...]
    peaks: Mapping[int, Mapping[str, float | None]]
    control: Comparison | None
    idle: Mapping[str, float]

    def figure(self, kind: str, length: int, threads: int, peer: str) -> Figure | None:
        """The figure of one shape and peer."""
        for each in self.figures:
            if (each.kind, each.length, each.threads, each.peer) == (kind, length, threads, peer):
                return each
        return None

    def ratio(self, kind: str, length: int, threads: int, peer: str) -> float | None:
        """Ours over the peer's; None when it was not measured."""
        found = self.figure(kind, length, threads, peer)
        return None if found is None else found.ratio

    def _roof(self, kind: str, length: int, threads: int) -> Mapping[str, Any] | None:
        for each in self.roofs:
            if (each["kind"], each["length"], each["threads"]) == (kind, length, threads):
                return each
        return None

    def speed(self, kind: str, length: int, threads: int) -> float | None:
        """Our median, tokens a second."""
        found = self._roof(kind, length, threads)
        return None if found is None else float(statistics.median(found["speeds"]))

    def roof_share(self, length: int, threads: int) -> float | None:
        """Decode's share of plain reading: seconds to read a step's bytes / the step's seconds."""
        found, speed = self._roof("decode", length, threads), self.speed("decode", length, threads)
        return None if found is None or speed is None else float(found["read_s"][str(threads)]) * speed

    def peak_share(self, prompt: int, threads: int) -> float | None:
        """Prefill's share of its instruction set's int8 peak, by the multiply-adds with weights."""
        speed = self.speed("prefill", prompt, threads)
        peak = self.peaks.get(threads, {}).get(str(self.sides["assay"]["isa"]))
        if speed is None or peak is None:
            return None
        return self._macs(prompt) * speed / peak

    def _macs(self, prompt: int) -> float:
        macs = self.sides["assay"]["macs"]
        return float(macs["layers"]) + float(macs["head"]) / prompt

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every floor, met or not."""
        out = []
        for context, floor in floors.DECODE_RATIO.items():
            out.append(self._over(f"decode at {context} over {LLAMA}", floor, "decode", context, LLAMA))
        for prompt, floor in floors.PREFILL_RATIO.items():
            out.append(self._over(f"prefill of {prompt} over {LLAMA}", floor, "prefill", prompt, LLAMA))
        for prompt in floors.PREFILL_PROMPTS:
            name = f"prefill of {prompt} over {IK}"
            out.append(self._over(name, floors.IK_PREFILL_RATIO, "prefill", prompt, IK))
        share = self.roof_share(0, 1)
        out.append(
            floors.at_least("decode at 0 over the reading roof, 1 thread", floors.ROOF_ONE_THREAD, share)
        )
        return tuple(out)

    def _over(self, name: str, floor: float, kind: str, length: int, peer: str) -> Verdict:
        found = self.figure(kind, length, LEAD_THREADS, peer)
        low = None
        if found is not None and found.comparison is not None:
            low = found.comparison.bootstrap.low or found.comparison.t_interval.low
        return floors.at_least(name, floor, None if found is None else found.ratio, low)

    @cached_property
    def void(self) -> tuple[str, ...]:
        """Why no figure counts; empty when they do."""
        reasons = []
        if self.control is not None and control_is_void(self.control):
            effect = self.control.mean_ratio - 1
            reasons.append(f"the A/A control shows an effect of {effect:+.1%}, more than its MDE: too noisy")
        for name, share in self.idle.items():
            if share > MOST_IDLE_SHARE:
                reasons.append(f"{name} used {share:.0%} of a core while another side was measured")
        for figure in self.figures:
            if figure.peer == LLAMA and figure.their_speed is not None:
                reasons += self._slow_peer(figure, figure.their_speed)
        for roof in self.roofs:
            if roof["kind"] == "decode":
                share = statistics.median(roof["speeds"]) * roof["read_s_best"][str(roof["threads"])]
                if share > floors.IMPOSSIBLE_SHARE:
                    reasons.append(
                        f"decode at {roof['length']} with {roof['threads']} threads is {share:.0%} of the "
                        "fastest read of its bytes: impossible, so the roof was measured wrongly"
                    )
        return tuple(reasons)

    def peer_bar(self, figure: Figure) -> float | None:
        """Tokens a second that a figure's peer must reach for the run to count; None without a bar."""
        peak = self.peaks.get(figure.threads, {}).get("reference")
        if peak is None or figure.threads not in floors.PEER_BARS:
            return None
        macs = self.sides["assay"]["macs"]
        layers, head = float(macs["layers"]), float(macs["head"])
        if figure.kind == "prefill":
            return floors.peer_prefill_bar(figure.threads, figure.length, peak, layers)
        roof = self._roof("decode", figure.length, figure.threads)
        if figure.length or roof is None:
            return None
        return floors.peer_decode_bar(
            figure.threads, 1 / float(roof["read_s"][str(figure.threads)]), peak, layers + head
        )

    def _slow_peer(self, figure: Figure, speed: float) -> list[str]:
        bar = self.peer_bar(figure)
        if bar is None or speed >= bar:
            return []
        return [
            f"{figure.peer} reached {speed:.1f} tok/s in {figure.kind} of {figure.length} with "
            f"{figure.threads} threads, below the {bar:.1f} that its share on the reference machine asks "
            "here: it is handicapped"
        ]

    @property
    def exit_code(self) -> int:
        """0 every floor met, 4 a floor's figure was not measured, 5 void or a floor missed."""
        if self.void or any(not each.met and each.measured is not None for each in self.verdicts):
            return 5
        return 0 if all(each.met for each in self.verdicts) else 4

    def as_json(self) -> dict[str, Any]:
        """Everything; ratios are over llama.cpp (2 threads), `roof` is one thread's share."""

        def ratios(kind: str, lengths: tuple[int, ...], peer: str, threads: int) -> dict[str, float | None]:
            return {str(length): self.ratio(kind, length, threads, peer) for length in lengths}

        contexts, prompts = floors.DECODE_CONTEXTS, floors.PREFILL_PROMPTS
        return {
            "decode": ratios("decode", contexts, LLAMA, LEAD_THREADS),
            "prefill": ratios("prefill", prompts, LLAMA, LEAD_THREADS),
            "roof": self.roof_share(0, 1),
            "roof_2": self.roof_share(0, LEAD_THREADS),
            "peak": {str(prompt): self.peak_share(prompt, LEAD_THREADS) for prompt in prompts},
            "ik": {
                "decode": ratios("decode", contexts, IK, LEAD_THREADS),
                "prefill": ratios("prefill", prompts, IK, LEAD_THREADS),
            },
            "decode_1": ratios("decode", contexts, LLAMA, 1),
            "prefill_1": ratios("prefill", prompts, LLAMA, 1),
            "floors": [asdict(each) for each in self.verdicts],
            "floors_met": all(each.met for each in self.verdicts),
            "void": list(self.void),
            "exit_code": self.exit_code,
            **asdict(self),
        }
