"""A pin set made of the test pin set, whose profiles are short enough for a test.

It has the test set's name, so its sources, data and environments are the test set's own; only what is asked
is less: the files of `eval/configs/`, cut by the rules below and by nothing else. It lies in the checkout,
where every pin set must.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from assay.dialect.flat import inline
from assay.paths import CONFIGS, OWNED, owned_directory
from assay.profile import merge
from pinned.locks import PINS


@dataclass(frozen=True)
class Cut:
    """What is left of an entry: its tasks and rollouts, and what else its native file is given."""

    tasks: int
    rollouts: int = 1
    native: Mapping[str, Any] | None = None


@contextmanager
def short(
    profiles: Mapping[str, Mapping[str, Cut]], shared: Mapping[str, Any], name: str = "test"
) -> Iterator[Path]:
    """The pin set's folder, there while the block runs.

    Args:
        profiles: What is left of each entry by profile; other entries and profiles are left out.
        shared: What is laid over `local.toml` (its sampling also over that of `direct.toml`).
        name: The set's; of another name nothing is made yet.
    """
    folder = owned_directory(OWNED / "tests") / f"pins-{uuid4().hex}"
    shutil.copytree(PINS, folder)
    try:
        (folder / "pins.toml").write_text(f'name = "{name}"\n')
        write(folder / "configs", profiles, shared)
        yield folder
    finally:
        shutil.rmtree(folder)


def write(configs: Path, profiles: Mapping[str, Mapping[str, Cut]], shared: Mapping[str, Any]) -> None:
    """Write the cut profiles into an absent folder."""
    configs.mkdir()
    facts = read(CONFIGS / "profiles.toml")
    kept = {}
    for name, cuts in profiles.items():
        entries = [entry for entry in facts[name]["entry"] if entry["name"] in cuts]
        assert len(entries) == len(cuts), f"{name} has not all of {list(cuts)}"
        for entry in entries:
            cut = cuts[entry["name"]]
            entry |= {"tasks": cut.tasks, "rollouts": cut.rollouts}
            own = read(CONFIGS / name / f"{entry['name']}.toml")
            dump(configs / name / f"{entry['name']}.toml", cut_entry(own, cut, "first_seed" in entry))
        kept[name] = {**facts[name], "entry": entries}
    dump(configs / "profiles.toml", kept)
    dump(configs / "local.toml", merge(read(CONFIGS / "local.toml"), shared))
    dump(configs / "direct.toml", merge(read(CONFIGS / "direct.toml"), {"sampling_args": shared["sampling"]}))


def cut_entry(own: dict[str, Any], cut: Cut, seeded: bool) -> dict[str, Any]:
    """An entry's native file with fewer tasks and rollouts."""
    if "eval" in own:
        (table,) = own["eval"]
        less = {"num_examples": cut.tasks, "rollouts_per_example": cut.rollouts}
        return {"eval": [merge({**table, **less}, cut.native or {})]}
    rollouts = 1 if seeded else cut.rollouts
    return merge({**own, "num_tasks": cut.tasks, "num_rollouts": rollouts}, cut.native or {})


def read(path: Path) -> dict[str, Any]:
    """The TOML document in a file."""
    return tomllib.loads(path.read_text("utf-8"))


def dump(path: Path, value: Mapping[str, Any]) -> None:
    """Write a TOML document, one line a key."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{name} = {inline(item)}\n" for name, item in value.items()), "utf-8")
