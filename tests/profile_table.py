"""What the upstream profiles must ask, written down a second time, and the lint that holds the files to it.

The table is the founding document's. It is read by nothing but this lint, and the lint reads the TOML files
by itself, so that neither a slip in a file nor one in the code that reads it passes unnoticed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GREEDY = {"temperature": 0.0, "top_p": 1.0}
LENGTH = 32768
NEUTRAL = {"frequency_penalty": 0.0, "presence_penalty": 0.0}
BODY = {"min_p": 0.0, "repetition_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": True}}
ENDPOINT = "http://127.0.0.1:18020/v1"
MODEL = "qwen3.8-27b"
KEY = "QWEN_API_KEY"
SCRIPTS = {"UV_LOCKED": "true", "UV_PYTHON": "3.12", "UV_PYTHON_DOWNLOADS": "never"}

LOCAL: Mapping[str, Any] = {
    "model": MODEL,
    "max_concurrent": 1,
    "push": False,
    "client": {"type": "eval", "base_url": ENDPOINT, "api_key_var": KEY},
    "sampling": {**GREEDY, "max_tokens": LENGTH, **NEUTRAL, "extra_body": BODY},
    "serve": {"pool": {"type": "static", "num_workers": 1}},
    "env": {
        "agent": {
            "max_turns": 1,
            "timeout": {"setup": 600.0, "rollout": 1800.0, "scoring": 600.0},
            "harness": {"id": "null", "env": SCRIPTS},
            "runtime": {
                "type": "docker",
                "image": "assay-sandbox",
                "workdir": "/workspace",
                "cpu": 2.0,
                "memory": 4.0,
                "allow": [],
            },
        }
    },
}
DIRECT: Mapping[str, Any] = {
    "model": MODEL,
    "api_client_type": "openai_chat_completions",
    "api_base_url": ENDPOINT,
    "api_key_var": KEY,
    "max_concurrent": 1,
    "disable_env_server": True,
    "max_retries": 0,
    "timeout": 1800.0,
    "save_results": True,
    "save_to_hf_hub": False,
    "sampling_args": {**GREEDY, "max_tokens": LENGTH, **NEUTRAL, "extra_body": BODY},
}
SAMPLED = {"temperature": 0.6, "top_p": 0.95, "extra_body": {"top_k": 20}}
SHELL = {"max_turns": 16, "max_output_tokens": 32768, "harness": {"id": "bash", "search": False}}


@dataclass(frozen=True)
class Row:
    """One entry: what stands in `profiles.toml`, and what its own file adds to the shared part."""

    tasks: int
    rollouts: int
    native: Mapping[str, Any]
    first_seed: int | None = None


@dataclass(frozen=True)
class Column:
    """One profile."""

    entries: Mapping[str, Row]
    evaluator: str = "prime-envs"
    runtimes: tuple[str, ...] = ("docker",)
    shared: str = "local.toml"
    agentic: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


def ask(
    taskset: str,
    tasks: int,
    rollouts: int = 1,
    *,
    whole: bool = False,
    shuffle: bool = True,
    options: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    first_seed: int | None = None,
) -> Row:
    """An entry for Verifiers 0.3; `whole` asks for every task and never shuffles."""
    native: dict[str, Any] = {
        "num_rollouts": 1 if first_seed is not None else rollouts,
        "shuffle": shuffle and not whole,
        "env": {"taskset": {"id": taskset, **(options or {})}, **({"agent": agent} if agent else {})},
    }
    native |= {} if whole else {"num_tasks": tasks}
    native |= {"sampling": sampling} if sampling else {}
    return Row(tasks, rollouts, native, first_seed)


def direct(tasks: int, rollouts: int, env_id: str, whole: bool, arguments: Mapping[str, Any]) -> Row:
    """An entry for Verifiers 0.1."""
    table = {
        "env_id": env_id,
        "num_examples": -1 if whole else tasks,
        "rollouts_per_example": rollouts,
        "env_args": arguments,
    }
    return Row(tasks, rollouts, {"eval": [table]})


def cut(tokens: int) -> Mapping[str, Any]:
    """A lower budget a call."""
    return {"max_tokens": tokens}


def core(whole: bool, sampled: bool = False) -> dict[str, Row]:
    """The five tasksets of quick and full."""
    sizes = (
        {"aime24": (30, 20), "aime25": (30, 20), "aime26": (30, 20), "i3-logic": (11060, 1)}
        | {"livecodebench": (454, 2)}
        if whole
        else {"aime24": (10, 1), "aime25": (10, 1), "aime26": (10, 1), "i3-logic": (24, 1)}
        | {"livecodebench": (12, 1)}
    )
    how: dict[str, Any] = {"sampling": SAMPLED, "first_seed": 0} if sampled else {}
    return {name: ask(name, *size, whole=whole, **how) for name, size in sizes.items()}


def files(whole: bool) -> dict[str, Row]:
    """The three entries of agentic."""
    ranges = {"mrcr-v2-64k": ("32k-64k", 85), "mrcr-v2-256k": ("128k-256k", 141)}
    rows = {
        name: ask(
            "mrcr-v2",
            size if whole else 8,
            8 if whole else 1,
            whole=whole,
            options={"needle_count": 8, "context_range": chosen},
            agent=SHELL,
        )
        for name, (chosen, size) in ranges.items()
    }
    exact = {"task": {"scoring": "exact"}}
    walks = ask("graphwalks", 1150 if whole else 8, whole=whole, options=exact, agent=SHELL)
    return {**rows, "graphwalks": walks}


def prompts(tasks: int | None, characters: int) -> Column:
    """One of the direct profiles; None for every task."""
    whole = tasks is None
    rows = {
        f"mrcr-{name}": direct(
            tasks or size, 8 if whole else 1, "mrcr-v2", whole, {"needle_count": 8, "context_range": chosen}
        )
        for name, chosen, size in (("64k", "32k-64k", 85), ("256k", "128k-256k", 141))
    }
    rows |= {
        f"graphwalks-{kind}": direct(
            tasks or size,
            1,
            "graphwalks",
            whole,
            {"scoring": "exact", "problem_type": kind, "prompt_chars_filter": f"<={characters}"},
        )
        for kind, size in (("bfs", 350), ("parents", 400))
    }
    return Column(rows, evaluator="direct", runtimes=("none",), shared="direct.toml")


TABLE: Mapping[str, Column] = {
    "smoke": Column({"aime24": ask("aime24", 3, shuffle=False)}),
    "quick": Column(core(whole=False)),
    "full": Column(core(whole=True)),
    "full-sampled": Column(core(whole=True, sampled=True)),
    "tiny": Column({"aime25": ask("aime25", 3)}),
    "broad": Column(
        {
            "mmlu-pro": ask("mmlu-pro", 10, options={"n_shot": 0}, sampling=cut(8192)),
            "i3-logic": ask("i3-logic", 4, sampling=cut(16384)),
            "livecodebench": ask("livecodebench", 3, sampling=cut(16384)),
        }
    ),
    "diverse": Column({"i3-logic": ask("i3-logic", 24, sampling=cut(8192))}),
    "agentic": Column(files(whole=False), agentic=True),
    "agentic-full": Column(files(whole=True), agentic=True),
    "direct-smoke": prompts(1, 65536),
    "direct-quick": prompts(8, 262144),
    "direct-full": prompts(None, 524288),
}
SHARED = {"local.toml": LOCAL, "direct.toml": DIRECT}
# The embedded default asks another evaluator, and its own tests say what.
OWN = ("demo", "demo-full")
MODEL_ONLY = ("smoke", "quick", "full", "full-sampled")
MAY_SAMPLE = ("full-sampled",)
QUICK_TASKS = 66


def problems(configs: Path) -> Iterator[str]:
    """Everything in a folder of profiles that is not as the table says."""
    facts = read(configs / "profiles.toml")
    for name, expected in SHARED.items():
        yield from differences(expected, read(configs / name), name)
    for name in sorted(facts.keys() ^ {*TABLE, *OWN}):
        yield f"profiles.toml: {name} is {'not in the table' if name in facts else 'missing'}"
    folders = {path.name for path in configs.iterdir() if path.is_dir()} - {"campaigns", "suites"}
    yield from (f"{name}/: is no profile's" for name in sorted(folders - facts.keys()))
    for name in (name for name in TABLE if name in facts):
        yield from profile_problems(configs, name, facts[name])
    yield from rules(configs, facts)


def profile_problems(configs: Path, name: str, said: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one profile."""
    column = TABLE[name]
    expected = {
        "evaluator": column.evaluator,
        "runtimes": list(column.runtimes),
        "entry": [
            {"name": entry, "tasks": row.tasks, "rollouts": row.rollouts}
            | ({} if row.first_seed is None else {"first_seed": row.first_seed})
            for entry, row in column.entries.items()
        ],
    }
    expected |= {"agentic": True} if column.agentic else {}
    expected |= {} if column.shared == "local.toml" else {"shared": column.shared}
    found = {key: value for key, value in said.items() if key != "description"}
    yield from differences(expected, found, f"profiles.toml: {name}")
    if not said.get("description"):
        yield f"profiles.toml: {name} has no description"
    for path in sorted((configs / name).iterdir()):
        if path.stem not in column.entries or path.suffix != ".toml":
            yield f"{name}/{path.name}: is no entry of the table"
    for entry, row in column.entries.items():
        path = configs / name / f"{entry}.toml"
        if not path.is_file():
            yield f"{name}/{entry}.toml: is missing"
            continue
        yield from differences(row.native, read(path), f"{name}/{entry}.toml")


def rules(configs: Path, facts: Mapping[str, Any]) -> Iterator[str]:
    """What holds for all profiles whatever the table says of each."""
    quick = sum(entry["tasks"] for entry in facts.get("quick", {}).get("entry", []))
    if quick != QUICK_TASKS:
        yield f"quick asks {quick} tasks, not {QUICK_TASKS}"
    tools = {entry for name in TABLE if TABLE[name].agentic for entry in TABLE[name].entries}
    for name in MODEL_ONLY:
        for entry in facts.get(name, {}).get("entry", []):
            if entry["name"] in tools:
                yield f"{name} holds {entry['name']}, which gives the model tools"
    for name, column in TABLE.items():
        for path in sorted((configs / name).glob("*.toml")):
            own = read(path)
            if column.evaluator == "direct":
                own = own.get("eval", [{}])[0]
            where = f"{name}/{path.name}"
            yield from (f"{where}: sets {key}, which is shared" for key in sorted(SHARED_KEYS & own.keys()))
            sampling = own.get("sampling", own.get("sampling_args", {}))
            if name not in MAY_SAMPLE:
                others = sorted(sampling.keys() - {"max_tokens"})
                yield from (
                    f"{where}: changes sampling.{key}; only max_tokens may be lower" for key in others
                )
            if sampling.get("max_tokens", 0) > LENGTH:
                yield f"{where}: raises sampling.max_tokens; it may only be lower"


SHARED_KEYS = {"model", "max_concurrent", "push", "client", "serve"} | DIRECT.keys() - {"sampling_args"}


def differences(expected: Any, found: Any, where: str) -> Iterator[str]:
    """Every leaf in which two values differ, by its path; types count, so that 1 is not true and not 1.0."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in [*expected, *(key for key in found if key not in expected)]:
            if key not in found:
                yield f"{where}: {key} is missing, expected {expected[key]!r}"
            elif key not in expected:
                yield f"{where}: {key} = {found[key]!r} is not in the table"
            else:
                yield from differences(expected[key], found[key], f"{where}: {key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{where}[{index}]")
    elif expected != found or type(expected) is not type(found):
        yield f"{where}: is {found!r}, expected {expected!r}"


def read(path: Path) -> dict[str, Any]:
    """The TOML document in a file."""
    return tomllib.loads(path.read_text("utf-8"))
