"""A checkout whose campaigns are real, over verbs of the coordinator that a test scripts."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.dialect.flat import inline
from assay.process import start_time_ticks
from toy_checkout import ROOT, until

TOY = Path(__file__).parent / "toy"
LIMIT_S = 120.0
SUITE = """\
description = "three questions of nobody"

[target.server]
base_url = "http://127.0.0.1:{port}/v1"
model = "toy"
max_concurrency = 2

[[job]]
id = "first"
backend = "mock"
dataset = "mock"
target = "server"
backend_args = {{items = 3}}
"""
SERVER = """\
[server]
command = ["{python}", "{server}", "--port", "{port}"]
health = "http://127.0.0.1:{port}/health"
wait_seconds = 30.0
stop_seconds = {stop_seconds}
"""


@dataclass
class Toy:
    """The checkout, and the campaign that is in it."""

    root: Path
    port: int
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def campaign(self) -> Path:
        return self.root / "two.toml"

    def write(
        self,
        *steps: str,
        server: Mapping[str, object] | None = None,
        stop_seconds: float = 20.0,
        **arguments: tuple[str, ...],
    ) -> None:
        """Write the campaign: a step for each name, `arguments` being what a step's own server is given."""
        text = SERVER.format(
            python=sys.executable, server=TOY / "server.py", port=self.port, stop_seconds=stop_seconds
        )
        text += "".join(f"{name} = {inline(value)}\n" for name, value in (server or {}).items())
        for step in steps or ("text", "pictures"):
            text += f'\n[[step]]\nname = "{step}"\nsuite = "toy.toml"\n'
            if step in arguments:
                text += f"[step.server]\narguments = {json.dumps(arguments[step])}\n"
        self.campaign.write_text('description = "two steps"\n\n' + text)

    def next(self, *codes: int | str) -> None:
        """What the runs to come do."""
        (self.root / "next.json").write_text(json.dumps(codes))

    def said(self, *verbs: str) -> list[dict[str, Any]]:
        """The verbs of the coordinator that were typed so far, those of some names alone."""
        path = self.root / "said.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [each for each in found if each["verb"] in (verbs or ("run", "resume"))]

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ASSAY_", "QWEN_"))}
        return {**kept, "PYTHONPATH": str(self.root / "eval"), **self.variables, **variables}

    def words(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "assay.cli", "campaign", str(self.campaign), *map(str, words)]

    def run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Carry the campaign on to its end."""
        return subprocess.run(
            self.words(*words),
            cwd=self.root.parent,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def start(self, *words: str | Path, **variables: str) -> subprocess.Popen[str]:
        """Begin to carry it on, in a session of its own as a terminal would."""
        return subprocess.Popen(
            self.words(*words),
            cwd=self.root.parent,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def folder(self, step: str) -> Path:
        return self.root / "eval/runs/campaigns/two" / step

    def state(self, step: str) -> dict[str, Any]:
        value = json.loads((self.folder(step) / "state.json").read_text())
        assert isinstance(value, dict)
        return value

    def server(self) -> dict[str, Any]:
        """What the server that runs now says of itself."""
        until((self.root / "server.json").exists)
        until(lambda: (self.root / "server.json").read_text().endswith("}"))
        value = json.loads((self.root / "server.json").read_text())
        assert isinstance(value, dict)
        return value

    def waits(self) -> None:
        """Wait until a run hangs."""
        until((self.root / "hanging").exists)
        (self.root / "hanging").unlink()


def make(root: Path) -> Toy:
    """Write the checkout; every run of its campaign will end well."""
    # With what was compiled of it: every command would compile it again.
    shutil.copytree(ROOT / "eval/assay", root / "eval/assay")
    for verb in ("plan", "resume", "run", "status"):
        shutil.copy(TOY / "runs.py", root / f"eval/assay/verbs/{verb}.py")
    cli = root / "eval/assay/cli.py"
    cli.write_text(cli.read_text().replace("VERBS = {", 'VERBS = {"plan": "", "resume": "",', 1))
    shutil.copy(ROOT / "models.lock", root / "models.lock")
    (root / "eval/configs").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (root / "toy.toml").write_text(SUITE.format(port=port))
    made = Toy(root, port)
    made.write()
    made.next(0, 0)
    return made


def gone(pid: int) -> bool:
    """Whether no such process lives."""
    return start_time_ticks(pid) is None
