"""A report of `bench.peers` in words: lines while it runs, the summary, and its section of RESULTS.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bench import floors
from bench.conduct import Figure
from bench.floors import Verdict
from bench.paired import Comparison
from bench.peers_report import IK, LEAD_THREADS, LLAMA, Report
from bench.results import table


def figure_line(figure: Figure) -> str:
    """One comparison."""
    what = f"{figure.kind:7} {figure.length:5}, {figure.threads} threads, {figure.peer:12}"
    if figure.comparison is None:
        return f"{what}: not measured: {figure.error}"
    return (
        f"{what}: {statistics.median(figure.ours):7.1f} / {statistics.median(figure.theirs):7.1f} tok/s "
        f"= {comparison_text(figure.comparison)} (flash attention {figure.kept})"
    )


def comparison_text(comparison: Comparison) -> str:
    """A ratio with interval and MDE."""
    interval, mde = _interval(comparison), comparison.mde
    smallest = "" if mde is None else f", MDE {mde:.1%}"
    return f"{comparison.ratio:.2f}x{interval}{smallest}, {comparison.pairs} pairs"


def _interval(comparison: Comparison) -> str:
    for interval in (comparison.bootstrap, comparison.t_interval):
        if interval.low is not None and interval.high is not None:
            name = "" if interval is comparison.bootstrap else "t "
            return f" [{name}{interval.low:.2f}, {interval.high:.2f}]"
    return ""


def roof_line(roof: Mapping[str, Any]) -> str:
    """What the machine offered around a shape."""
    size = roof["read_bytes"]
    rates = ", ".join(
        f"{count} thread{'s' if count != '1' else ''} {size / seconds / 1e9:.1f} GB/s"
        for count, seconds in roof["read_s"].items()
    )
    share = ""
    if roof["kind"] == "decode":
        speed = statistics.median(roof["speeds"])
        share = f"; ours is {roof['read_s'][str(roof['threads'])] * speed:.0%} of it"
    return f"{roof['kind']:7} {roof['length']:5}: reads {rates}{share}"


def verdict_line(verdict: Verdict) -> str:
    """One floor."""
    measured = "not measured" if verdict.measured is None else f"{verdict.measured:.3g}"
    bound = {None: "", True: "; its bound too", False: "; its bound does not"}[verdict.bound_met]
    return f"{'pass' if verdict.met else 'FAIL'}  {verdict.name}: {measured}, asked {verdict.floor:g}{bound}"


def report_text(report: Report) -> str:
    """The summary after all figures."""
    lines = [
        "",
        _machine(report),
        f"busy before {report.busy_before:.0%}, load {report.load_before[0]:.2f} before and "
        f"{report.load_after[0]:.2f} after, stolen by other guests {report.steal_share:.1%}; "
        f"{report.wall_s:.0f} s",
        f"ours: {report.sides['assay']['isa']}, library {report.sides['assay']['library_sha256'][:16]}",
    ]
    for peer in (LLAMA, IK):
        if peer in report.sides:
            lines.append(f"{peer}: {report.sides[peer]['version']}: {report.sides[peer]['features']}")
        elif peer in report.missing:
            lines.append(f"{peer}: not opened: {report.missing[peer]}")
    lines += [f"failed: {what}: {why}" for what, why in report.broken.items()]
    if report.control is not None:
        lines.append(f"A/A control: {comparison_text(report.control)}")
    for threads, kinds in sorted(report.peaks.items()):
        told = ", ".join(f"{kind} {peak / 1e9:.0f}e9" for kind, peak in kinds.items() if peak is not None)
        lines.append(f"int8 multiply peak, {_threads(threads)}: {told} multiply-adds/s")
    for figure in report.figures:
        bar = report.peer_bar(figure)
        if figure.peer == LLAMA and bar is not None and figure.their_speed is not None:
            lines.append(
                f"{LLAMA}'s bar in {figure.kind} of {figure.length}, {figure.threads} threads: "
                f"{figure.their_speed:.1f} of {bar:.1f} tok/s"
            )
    lines += aims(report)
    lines += ["", *(verdict_line(each) for each in report.verdicts)]
    lines += [f"VOID: {reason}" for reason in report.void]
    return "\n".join(lines)


def aims(report: Report) -> list[str]:
    """What is aimed at beside the floors."""
    out = []
    share = report.roof_share(0, LEAD_THREADS)
    if share is not None:
        out.append(f"decode at 0 over the reading roof, 2 threads: {share:.0%} (aim {floors.ROOF_AIM:.0%})")
    for prompt in floors.PREFILL_PROMPTS:
        peak = report.peak_share(prompt, LEAD_THREADS)
        if peak is not None:
            out.append(
                f"prefill of {prompt} over the int8 peak: {peak:.0%} (aim of its GEMM {floors.PEAK_AIM:.0%})"
            )
    for kind, short, long in (("decode", 0, 2048), ("prefill", 128, 2048)):
        one, other = report.speed(kind, short, LEAD_THREADS), report.speed(kind, long, LEAD_THREADS)
        if one and other:
            out.append(
                f"{kind}: {1 - other / one:.0%} of the time at {long} is not there at {short} (attention)"
            )
    return out


def markdown(report: Report) -> str:
    """The section of RESULTS.md."""
    rows = [
        [
            f"{figure.kind} {figure.length}, {_threads(figure.threads)}, {figure.peer}",
            f"{statistics.median(figure.ours):.0f}" if figure.ours else "—",
            f"{statistics.median(figure.theirs):.0f}" if figure.theirs else "—",
            "not measured" if figure.ratio is None else f"{figure.ratio:.2f}",
            "—" if figure.comparison is None else _interval(figure.comparison).strip() or "—",
            _floor(figure),
            figure.kept or "—",
        ]
        for figure in report.figures
    ]
    versions = "; ".join(
        f"{peer}: {report.sides[peer]['version']} ({report.sides[peer]['features']})"
        for peer in (LLAMA, IK)
        if peer in report.sides
    )
    head = ["tok/s", "ours", "theirs", "ratio", "95 %", "floor", "flash"]
    lines = [
        "## Against llama.cpp and ik_llama.cpp",
        "",
        f"`{report.command}`, {report.taken}, {report.wall_s:.0f} s. {_machine(report)}; busy before "
        f"{report.busy_before:.0%}, stolen {report.steal_share:.1%}. Ours: {report.sides['assay']['isa']}. "
        f"{versions}.",
        "",
        table(head, rows),
        *(f"- {line}" for line in aims(report)),
        *(f"- {verdict_line(each)}" for each in report.verdicts if "roof" in each.name),
        "- A/A control: " + ("none" if report.control is None else comparison_text(report.control)),
        *(f"- **VOID**: {reason}" for reason in report.void),
    ]
    return "\n".join(lines)


def _machine(report: Report) -> str:
    machine = report.machine
    governor = machine.governor or "not told"
    return f"{machine.cpu}, {machine.cores} cores, {', '.join(machine.features)}; governor {governor}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _floor(figure: Figure) -> str:
    if figure.threads != LEAD_THREADS:
        return "—"
    if figure.peer == IK:
        return f"{floors.IK_PREFILL_RATIO:g}" if figure.kind == "prefill" else "—"
    asked = (floors.DECODE_RATIO if figure.kind == "decode" else floors.PREFILL_RATIO).get(figure.length)
    return "—" if asked is None else f"{asked:g}"
