"""What no ready-made linter checks: locks that pin every line, no index's address, a README that is true."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from assay import cli
from assay.console import say
from assay.paths import ROOT

# Built from parts, so that this file does not hold what it looks for.
INDEX_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("docker", "io/"),
        ("crates", "io"),
        ("anaconda", "org"),
        ("debian", "org"),
    )
)
PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[^\]]+\])?==[^\s;]+( ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
HEX = {"sha256": re.compile(r"[0-9a-f]{64}"), "git_sha1": re.compile(r"[0-9a-f]{40}")}
FENCE = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def report(problems: Iterator[str]) -> bool:
    """Print each problem; whether there was none."""
    found = list(problems)
    for problem in found:
        say(f"  {problem}")
    return not found


def tracked() -> list[Path]:
    """Every file that Git tracks and that is there."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    paths = [ROOT / name for name in done.stdout.decode("utf-8").split("\0") if name]
    return [path for path in paths if path.is_file()]


def lock_problems() -> Iterator[str]:
    """Lines of requirement locks that are neither a pinned version nor a digest, or a pin without one."""
    for path in tracked():
        if path.suffix != ".lock" or "==" not in path.read_text("utf-8"):
            continue
        previous = ""
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not (PINNED.fullmatch(line) or HASH.fullmatch(line)):
                yield f"{path.relative_to(ROOT)}:{number}: neither a pinned version nor a sha256: {line}"
            if previous.endswith("\\") != line.startswith("    --hash"):
                yield f"{path.relative_to(ROOT)}:{number}: it does not belong to the line before it"
            previous = line
        if previous.endswith("\\"):
            yield f"{path.relative_to(ROOT)}: ends in the middle of a requirement"


def data_problems() -> Iterator[str]:
    """Pins of task data that no download could be held against, or sizes that are told wrong.

    A second look, with nothing of the loader that the command uses.
    """
    total = 0
    lock = tomllib.loads((ROOT / "datasets.lock").read_text("utf-8"))
    for waiting in lock.get("unpinned", []):
        if {"revision", "size_bytes", "sha256"} & waiting.keys() or waiting["source"] not in (
            "github",
            "modelscope",
        ):
            yield f"datasets.lock: {waiting['name']}: it is listed as unpinned and looks as if it were pinned"
    for dataset in lock["dataset"]:
        name = dataset["name"]
        for file in dataset["files"]:
            where = f"datasets.lock: {name}/{file['path']}"
            digests = {key: file[key] for key in HEX if key in file}
            if len(digests) != 1 or not all(HEX[key].fullmatch(value) for key, value in digests.items()):
                yield f"{where}: no well-formed sha256 or git_sha1"
            elif len(set(*digests.values())) < 6:
                yield f"{where}: its digest was made up"
            if type(file["size_bytes"]) is not int or file["size_bytes"] <= 0:
                yield f"{where}: no size"
            if (dataset["source"] == "bucket") != str(file.get("generation", "")).isdigit():
                yield f"{where}: objects of a bucket have a generation, and nothing else has"
        if sum(file["size_bytes"] for file in dataset["files"]) != dataset["size_bytes"]:
            yield f"datasets.lock: {name}: size_bytes is not the sum over its files"
        if dataset["source"] != "bucket" and not HEX["git_sha1"].fullmatch(dataset["revision"]):
            yield f"datasets.lock: {name}: its revision is no commit"
        total += dataset["size_bytes"]
    if f"{total:,} bytes" not in (ROOT / "docs/formats.md").read_text("utf-8"):
        yield f"docs/formats.md: does not say that all task data are {total:,} bytes"


def address_problems() -> Iterator[str]:
    """Tracked files that name the host of a package registry."""
    for path in tracked():
        data = path.read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for host in INDEX_HOSTS:
                if host in line:
                    yield f"{path.relative_to(ROOT)}:{number}: names the registry {host}"


def readme_problems() -> Iterator[str]:
    """Where the README and the command disagree: commands, verbs, and the printed `--help`."""
    text = (ROOT / "README.md").read_text("utf-8")
    for block in FENCE.findall(text):
        yield from block_problems(block)
    for verb in cli.VERBS:
        if f"assay {verb}" not in text and f"eval/scripts/{verb}" not in text:
            yield f"README.md: says nothing of `assay {verb}`"


def block_problems(block: str) -> Iterator[str]:
    """Commands of one code block that do not exist, and help that is not what the command prints.

    A line that begins with `$ ` is a command and what follows is its output; a block without such lines holds
    commands alone.
    """
    shown = "\n" + block
    commands = shown.split("\n$ ")[1:] or block.splitlines()
    for command in commands:
        line, _, output = command.partition("\n")
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0].startswith(("eval/", "bench/", ".ci/")) and not (ROOT / words[0]).is_file():
            yield f"README.md: {words[0]} does not exist"
        if words[0].rpartition("/")[2] != "assay" or not words[1:]:
            continue
        if words[1] not in cli.VERBS and not words[1].startswith("-"):
            yield f'README.md: the command has no verb "{words[1]}"'
        elif words[-1] == "--help" and output and output.strip() != printed(words[1:]).strip():
            yield f"README.md: `{line}` prints something else"


def printed(words: list[str]) -> str:
    """What `assay` prints for the words, at 80 columns."""
    done = subprocess.run(
        [Path(sys.executable).with_name("assay"), *words],
        cwd=ROOT,
        env=dict(os.environ, COLUMNS="80"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.stdout.decode("utf-8")
