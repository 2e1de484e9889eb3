"""What is known of a job for Inspect without starting it: its task's name, and how many samples it has."""

from __future__ import annotations

import ast
import csv
import json
import re
from pathlib import Path

from assay import setup
from assay.errors import ConfigurationError
from assay.files import read_json
from assay.names import nearest
from assay.setup.installed import site_packages

NAME = "inspect"
PACKAGE = "inspect_evals"
SIZED = re.compile(r"^\s*-?\s*(name|dataset_samples):\s*['\"]?([\w.-]+)", re.MULTILINE)


def package() -> Path | None:
    """Where inspect-evals is installed; None when the environment is not there."""
    environment = setup.ENVIRONMENTS[NAME]
    if not environment.stamp.exists():
        return None
    found = site_packages(environment) / PACKAGE
    return found if found.is_dir() else None


def published(folder: Path) -> dict[str, str]:
    """Every task of inspect-evals, and the module that has it, as its registry lists them; nothing is run."""
    tree = ast.parse((folder / "_registry.py").read_text("utf-8"))
    return {
        item.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for item in node.names
    }


def require_published(job: str, name: str) -> None:
    """Refuse a task that inspect-evals does not have; ConfigurationError names the nearest."""
    folder = package()
    if folder is None:
        return
    known = published(folder)
    if name not in known:
        raise ConfigurationError(
            f'job {job}: inspect-evals has no task "{name}"', nearest(name, known), "mend dataset of that job"
        )


def published_samples(name: str) -> int | None:
    """How many samples inspect-evals says that a task has; None when it does not say, or is not installed."""
    folder = package()
    module = None if folder is None else published(folder).get(name)
    if folder is None or module is None:
        return None
    try:
        text = (folder / module.split(".")[1] / "eval.yaml").read_text("utf-8")
    except OSError:
        return None
    current = None
    for key, value in SIZED.findall(text):
        if key == "name":
            current = value
        elif current == name and value.isdigit():
            return int(value)
    return None


def local_samples(file: Path) -> int | None:
    """How many rows a local file has; None when it cannot be read."""
    try:
        if file.suffix.lower() == ".csv":
            with file.open(encoding="utf-8", newline="") as stream:
                return sum(1 for _ in csv.DictReader(stream))
        if file.suffix.lower() == ".jsonl":
            with file.open("rb") as lines:
                return sum(1 for line in lines if line.strip())
        value = read_json(file)
    except (OSError, ValueError, csv.Error, json.JSONDecodeError):
        return None
    return len(value) if isinstance(value, list) else 1
