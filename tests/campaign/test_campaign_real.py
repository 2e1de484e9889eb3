"""A campaign of the real coordinator over our own server: killed in its first step, and gone on with."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.files import read_jsonl
from toy_checkout import ROOT, until

pytestmark = pytest.mark.slow

ITEMS = 24
LIMIT_S = 300.0
SUITE = """\
description = "the mock asks our server, and nothing means anything"

[target.own]
base_url = "http://127.0.0.1:{port}/v1"
model = "smollm2-135m"
max_concurrency = 2

[defaults]
backend = "mock"
target = "own"
generation = {{max_tokens = 4, temperature = 0.0}}

[[job]]
id = "long"
dataset = "mock"
backend_args = {{items = {items}, ask = true}}

[[job]]
id = "short"
dataset = "mock"
backend_args = {{items = 2, ask = true}}

[list]
first = ["long"]
second = ["short"]
"""
CAMPAIGN = """\
description = "two servers, one after the other"

[server]
serve = "smollm2-135m"
health = "http://127.0.0.1:{port}/health"

[[step]]
name = "first"
suite = "asked.toml:first"
server = {{ arguments = ["--port", "{port}", "--slots", "2"] }}

[[step]]
name = "second"
suite = "asked.toml:second"
server = {{ arguments = ["--port", "{port}", "--slots", "2", "--context", "512"] }}
"""


@dataclass(frozen=True)
class Site:
    """A campaign's file and the folder of its runs."""

    file: Path
    runs: Path
    port: int

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "assay.cli", "campaign", self.file, "--runs", self.runs, "--json", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, dict[str, Any], str]:
        child = self.start(*words)
        out, said = child.communicate(timeout=LIMIT_S)
        return child.returncode, json.loads(out.splitlines()[-1]) if out else {}, said

    def folder(self, step: str) -> Path:
        return self.runs / "campaigns/both" / step

    def kept(self) -> int:
        """Answers that the first step's run has kept so far."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder("first").glob("*/answers/*.jsonl"))

    def answers(self) -> bool:
        """Whether a server is there."""
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def site(tmp_path: Path, model_path: Path) -> Site:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "asked.toml").write_text(SUITE.format(port=port, items=ITEMS))
    (tmp_path / "both.toml").write_text(CAMPAIGN.format(port=port))
    (tmp_path / "runs").mkdir()
    return Site(tmp_path / "both.toml", tmp_path / "runs", port)


def test_a_killed_campaign_goes_on_with_the_run_that_it_had_begun(site: Site) -> None:
    code, plan, said = site.run("--plan")
    assert code == 0, said
    assert [step["standing"] for step in plan["steps"]] == ["not begun", "not begun"]

    campaign = site.start()
    until(lambda: site.kept() >= 3 or campaign.poll() is not None, LIMIT_S)
    campaign.kill()
    _, said = campaign.communicate(timeout=LIMIT_S)
    assert site.kept() < ITEMS, said
    until(lambda: not site.answers(), LIMIT_S)
    kept = site.kept()

    code, answer, said = site.run()
    assert code == 0, said
    assert [step["exit_code"] for step in answer["steps"]] == [0, 0]
    (first,) = (path.parent for path in site.folder("first").glob("*/resolved.json"))
    state = json.loads((site.folder("first") / "state.json").read_text())
    assert [attempt["verb"] for attempt in state["attempts"]] == ["run", "resume"]
    rows = list(read_jsonl(first / "samples.jsonl"))
    # Four tokens are no whole answer; that none is missing or failed is what counts.
    assert len(rows) == ITEMS
    assert {row["status"] for row in rows} <= {"scored", "truncated"}
    assert site.kept() == ITEMS >= kept, "no answer was asked for twice"
    assert not site.answers()

    code, answer, said = site.run()
    assert code == 0, said
    assert [step["passed_by"] for step in answer["steps"]] == [True, True]
