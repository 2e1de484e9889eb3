"""What a toy checkout needs to have a run with everything pinned that the upstream profiles have.

An evaluator that takes a source from Git and leads its taskset to pinned data by every means there is, and a
profile whose rollouts have a seed each: the real core fetches nothing for it, since all of it is here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from hub_standin import lock_entry
from toy_checkout import ENTRY, EVALUATOR, Toy

REVISION = "5b" * 20
SEEDS = (7, 8, 9)
FILES = {"README.md": b"# Tiny\n", "data/part.parquet": b"PAR1 some rows PAR1"}
SNAPSHOT = f"hub/datasets--org--tiny/snapshots/{REVISION}"
REPOSITORY = "https://git.example/team/envs"

ROUTED = """\
sources = ["envs"]

[[route]]
taskset = "toy_tasks"
data = "tiny"
set = { "env.taskset.dataset" = "{snapshot}/data" }
link = "org/tiny"
environment = { TINY_DIR = "{snapshot}" }
hub = true
"""

PROFILE = """
[sampled]
description = "pinned data, a pinned source, and a seed a rollout: a toy"
evaluator = "routed"
runtimes = ["subprocess"]
serve = "toy-model"

[[sampled.entry]]
name = "count"
tasks = 6
rollouts = 3
first_seed = 7
"""

LOCK = """\
[[source]]
name = "envs"
repository = "{repository}"
revision = "{revision}"
"""


def extend(toy: Toy) -> None:
    """Add the evaluator, its source, its data and the profile to a toy checkout, and commit them."""
    root = toy.root
    toml, home = root / "eval/evaluators/toy/evaluator.toml", root / "eval/evaluators/routed"
    shutil.copytree(toml.parent, home, symlinks=True)
    head, table = EVALUATOR.replace('name = "toy"', 'name = "routed"').split("[environment]")
    text = f"{head}{ROUTED.replace('[[route]]', '[environment]' + table + '[[route]]', 1)}"
    (home / "evaluator.toml").write_text(text)
    (root / "prime-envs.lock").write_text(LOCK.format(repository=REPOSITORY, revision=source(root)))
    (root / "datasets.lock").write_text(lock_entry("tiny", "org/tiny", REVISION, FILES))
    cache = root / "eval/.data"
    for path, data in FILES.items():
        (cache / SNAPSHOT / path).parent.mkdir(parents=True, exist_ok=True)
        (cache / SNAPSHOT / path).write_bytes(data)
    (cache / "hub/datasets--org--tiny/refs").mkdir()
    (cache / "hub/datasets--org--tiny/refs/main").write_text(REVISION)
    (cache / ".assay-data.json").write_text(json.dumps({"owner": "assay data", "pins": "production"}))
    configs = root / "eval/configs"
    with (configs / "profiles.toml").open("a") as profiles:
        profiles.write(PROFILE)
    (configs / "sampled").mkdir()
    entry = ENTRY.format(rollouts=1, concurrent=2, size=3)
    (configs / "sampled/count.toml").write_text(f"{entry}\n[sampling]\ntemperature = 0.6\n")
    with (root / ".gitignore").open("a") as ignored:
        ignored.write("eval/.data/\neval/.sources/\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "routed")


def source(root: Path) -> str:
    """A repository at the source's place, as a set-up leaves it; returns its revision."""
    place = root / "eval/.sources/envs"
    place.mkdir(parents=True)
    (place / "env.py").write_text("TASKS = 6\n")
    git(place, "init", "-q")
    git(place, "config", "remote.origin.url", REPOSITORY)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "envs")
    return git(place, "rev-parse", "HEAD")


def git(root: Path, *words: str) -> str:
    """Run Git without any configuration of a user's."""
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    named = ["-c", "user.name=toy", "-c", "user.email=toy@localhost"]
    done = subprocess.run(
        ["git", "-C", str(root), *named, *words], env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def sha256(data: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(data).hexdigest()
