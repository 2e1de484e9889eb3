"""What the document's suites must ask, written down a second time, and what holds the files to it.

The figures are the founding document's. This file reads the TOML by itself, so that neither a slip in a suite
nor one in the code that reads it passes unnoticed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDPOINT = "http://127.0.0.1:18080/v1"
DAY = 86400
SAMPLES = {
    "aime25": 30,
    "aime26": 30,
    "gpqa_diamond": 198,
    "ifbench": 300,
    "erqa": 400,
    "real_world_qa": 765,
    "bfcl_v4": 5106,
}

CAPABLE = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 16384, "seed": 42}
QWEN36 = {
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 20,
    "presence_penalty": 1.0,
    "frequency_penalty": 0.0,
    "max_tokens": 262144,
    "seed": 42,
}
NEEDLE = {
    "temperature": 0,
    "max_tokens": 512,
    "seed": 42,
    "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
}
TOOLS = {"is_fc_model": True, "underscore_to_dot": True}
BFCL_SMOKE = ["simple_python", "multiple", "parallel", "irrelevance", "multi_turn_base"]
ZERO = {"few_shot_num": 0}


@dataclass(frozen=True)
class Row:
    """One job: what it asks, how it is sampled, and how many samples that is."""

    dataset: str
    generation: Mapping[str, Any]
    samples: int
    args: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    slots: int | None = None


@dataclass(frozen=True)
class Sheet:
    """One suite."""

    model: str
    slots: int
    jobs: Mapping[str, Row]
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeout: int = DAY


def whole(dataset: str, generation: Mapping[str, Any], **more: Any) -> Row:
    """A job that asks a benchmark whole."""
    return Row(dataset, generation, SAMPLES[dataset], **more)


def first(count: int, dataset: str, generation: Mapping[str, Any]) -> Row:
    """A job that asks the first samples of a benchmark without subsets."""
    return Row(dataset, generation, count, limit=count)


def needles(languages: list[str], low: int, high: int, lengths: int, depths: tuple[int, int, int]) -> Row:
    """A job over a matrix of lengths and depths in some languages."""
    args = {
        "subset_list": languages,
        "context_lengths": {"min": low, "max": high, "intervals": lengths},
        "depths": dict(zip(("min", "max", "intervals"), depths, strict=True)),
    }
    return Row("needle_haystack", NEEDLE, len(languages) * lengths * depths[2], args)


def qwen38(slots: int) -> Sheet:
    """The two steps of a Qwen3.8-27B campaign."""

    def generation(tokens: int) -> dict[str, Any]:
        return {
            "temperature": 1.0,
            "top_p": 0.95,
            "top_k": 20,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": 42,
            "extra_body": {"chat_template_kwargs": {"enable_thinking": True}},
            "max_tokens": tokens,
        }

    jobs = {
        "ifbench": whole("ifbench", generation(65536), args=ZERO),
        "aime25": whole("aime25", generation(122880)),
        "aime26": whole("aime26", generation(122880)),
        "gpqa-diamond": whole("gpqa_diamond", generation(245760), args=ZERO, slots=1),
        "erqa": whole("erqa", generation(65536), args=ZERO),
        "real-world-qa": whole("real_world_qa", generation(65536), args=ZERO),
    }
    lists = {
        "text": ("ifbench", "aime25", "aime26", "gpqa-diamond"),
        "multimodal": ("erqa", "real-world-qa"),
    }
    return Sheet("qwen3.8-27b", slots, jobs, lists)


BOTH = ["english", "chinese"]
AIME = {"aime25": whole("aime25", QWEN36), "aime26": whole("aime26", QWEN36)}
GPQA = {"gpqa-diamond": whole("gpqa_diamond", QWEN36, args=ZERO)}
TABLE: Mapping[str, Sheet] = {
    "capability": Sheet(
        "qwen3.6-27b",
        1,
        {
            "aime25-smoke": first(2, "aime25", CAPABLE),
            "aime26-smoke": first(2, "aime26", CAPABLE),
            "gpqa-diamond-smoke": first(2, "gpqa_diamond", CAPABLE),
            "bfcl-v4-smoke": Row(
                "bfcl_v4", {"temperature": 0}, 10, {"subset_list": BFCL_SMOKE, **TOOLS}, limit=2
            ),
            "aime25": whole("aime25", CAPABLE),
            "aime26": whole("aime26", CAPABLE),
            "gpqa-diamond": whole("gpqa_diamond", CAPABLE),
            "bfcl-v4": whole("bfcl_v4", {"temperature": 0}, args={**TOOLS, "allow_network_downloads": True}),
        },
        {
            "smoke": ("aime25-smoke", "aime26-smoke", "gpqa-diamond-smoke", "bfcl-v4-smoke"),
            "reasoning": ("aime25", "aime26", "gpqa-diamond"),
            "bfcl_full": ("bfcl-v4",),
        },
        timeout=3600,
    ),
    "qwen3-6-27b-reasoning": Sheet("qwen3.6-27b", 1, {**AIME, **GPQA}),
    "qwen3-6-35b-aime": Sheet(
        "qwen3.6-35b-a3b",
        1,
        {"aime25-smoke": first(1, "aime25", QWEN36), "aime26-smoke": first(1, "aime26", QWEN36), **AIME},
        {"smoke": ("aime25-smoke", "aime26-smoke"), "full": ("aime25", "aime26")},
    ),
    "qwen3-6-35b-gpqa": Sheet("qwen3.6-35b-a3b", 1, GPQA),
    "qwen3-6-35b-needle-haystack": Sheet(
        "qwen3.6-35b-a3b",
        1,
        {
            "smoke": Row(
                "needle_haystack",
                NEEDLE,
                1,
                needles(["english"], 8192, 8192, 1, (50, 50, 1)).args,
                limit=1,
            ),
            "standard": needles(BOTH, 1000, 32000, 10, (0, 100, 10)),
            "long-64k": needles(BOTH, 65536, 65536, 1, (0, 100, 11)),
            "long-128k": needles(BOTH, 131072, 131072, 1, (0, 100, 11)),
            "long-260k": needles(BOTH, 260000, 260000, 1, (0, 100, 11)),
        },
        {
            "smoke": ("smoke",),
            "standard": ("standard",),
            "native_long": ("long-64k", "long-128k", "long-260k"),
        },
    ),
    "qwen3-8-27b-nvfp4-reasoning": qwen38(2),
    "qwen3-8-27b-groupwise-reasoning": qwen38(4),
}
# Of this repository alone; their own tests say what they ask.
OWN = ("embedded", "mock")


def problems(folder: Path) -> Iterator[str]:
    """Everything in a folder of suites that is not as the table says."""
    files = {path.name for path in folder.iterdir()}
    expected = {f"{name}.toml" for name in (*TABLE, *OWN)}
    yield from (f"{name}: is in no table" for name in sorted(files - expected))
    yield from (f"{name}: is missing" for name in sorted(expected - files))
    for name, sheet in TABLE.items():
        if f"{name}.toml" in files:
            found = tomllib.loads((folder / f"{name}.toml").read_text("utf-8"))
            yield from (f"{name}: {problem}" for problem in sheet_problems(sheet, found))


def sheet_problems(sheet: Sheet, found: Mapping[str, Any]) -> Iterator[str]:
    """What of a document is not as its sheet says."""
    (target,) = found["target"].values()
    said = (target["base_url"], target["model"], target["max_concurrency"], target["request"])
    asked = (ENDPOINT, sheet.model, sheet.slots, {"timeout_seconds": sheet.timeout, "retries": 2})
    yield from differs("target", asked, said)
    yield from differs("max_parallel_jobs", 1, found["running"]["max_parallel_jobs"])
    yield from differs(
        "lists", {name: list(jobs) for name, jobs in sheet.lists.items()}, found.get("list", {})
    )
    yield from differs("jobs", list(sheet.jobs), [job["id"] for job in found["job"]])
    under = found.get("defaults", {})
    for job in found["job"]:
        row = sheet.jobs.get(job["id"])
        if row is None:
            continue
        generation = {**under.get("generation", {}), **job.get("generation", {})}
        yield from differs(f"{job['id']}: generation", dict(row.generation), generation)
        yield from differs(f"{job['id']}: dataset", row.dataset, job["dataset"])
        yield from differs(f"{job['id']}: limit", row.limit, job.get("limit"))
        yield from differs(f"{job['id']}: slots", row.slots, job.get("max_concurrency"))
        yield from differs(f"{job['id']}: backend_args", dict(row.args), job.get("backend_args", {}))
        yield from differs(f"{job['id']}: backend", "evalscope", {**under, **job}["backend"])
        known = {
            "id",
            "backend",
            "dataset",
            "target",
            "limit",
            "max_concurrency",
            "generation",
            "backend_args",
        }
        yield from (f"{job['id']}: sets {key}" for key in sorted({**under, **job}.keys() - known))


def differs(what: str, expected: object, found: object) -> Iterator[str]:
    """A line where the two are not the same."""
    if expected != found:
        yield f"{what}: is {found!r}, expected {expected!r}"


def samples(name: str, chosen: str | None = None) -> int:
    """How many samples a suite, or one of its lists, asks for."""
    sheet = TABLE[name]
    return sum(sheet.jobs[job].samples for job in (sheet.lists[chosen] if chosen else sheet.jobs))
