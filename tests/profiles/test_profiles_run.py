"""`smoke`, `quick` and an agentic entry as a user runs them, cut short: our server, real containers.

What the model answers is not asserted: it is far too small for these tasks. That every row is asked, scored
and recorded, that all of it is computed again, and that the record never passes for the real thing, is.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from short_pins import Cut, short

from assay.files import read_jsonl
from pinned.site import LIMIT_S, Site
from tests.server.fuzz.header import parse
from tests.server.fuzz.spoken import entry as gguf_entry
from toy_checkout import ROOT, until

pytestmark = [pytest.mark.docker, pytest.mark.slow]

MODEL = "qwen3.8-27b"
KEY = "canary-8d21f07b5c"
# 24 tokens are enough to see an answer come and go.
SHARED: dict[str, Any] = {"sampling": {"max_tokens": 24}}
CUTS = {
    "smoke": {"aime24": Cut(2)},
    "quick": {"i3-logic": Cut(1), "livecodebench": Cut(1)},
    "agentic": {"graphwalks": Cut(1, native={"env": {"agent": {"max_turns": 2}}})},
}


@dataclass(frozen=True)
class Ran:
    """A finished run: its exit code, its answer to `--json`, and all it printed."""

    code: int
    answer: dict[str, Any]
    printed: str
    pins: Path

    @property
    def run(self) -> Path:
        """Its directory."""
        return Path(self.answer["run_dir"])


# The real model's own template knows no tools, and the agentic harness asks with some.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    'Call one with <tool_call>\n{"name": "...", "arguments": {}}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@contextmanager
def serving(weights: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Our server with the real weights under the name that the profiles ask for.

    Gives its address and its key's file.
    """
    model = folder / "model.gguf"
    model.write_bytes(
        parse(weights.read_bytes()).with_entries(gguf_entry("tokenizer.chat_template", TEMPLATE)).encode()
    )
    key, ready = folder / "key", folder / "ready.json"
    key.touch(mode=0o600)
    key.write_text(KEY)
    words = [
        "serve",
        model,
        "--port",
        "0",
        "--name",
        MODEL,
        "--key-file",
        key,
        "--ready-file",
        ready,
    ]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "assay.cli", *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: ready.exists() or server.poll() is not None, LIMIT_S)
        assert ready.exists(), (folder / "server.log").read_text()
        yield f"http://127.0.0.1:{json.loads(ready.read_text())['port']}/v1", key
    finally:
        server.terminate()
        server.wait(LIMIT_S)


@pytest.fixture(scope="module")
def ran(model_path: Path, pinned: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    """The three profiles, run one after the other."""
    folder = tmp_path_factory.mktemp("profiles")
    runs = folder / "runs"
    runs.mkdir()
    found = {}
    with serving(model_path, folder) as (base_url, key), short(CUTS, SHARED) as pins:
        for profile in CUTS:
            words = ("--base-url", base_url, "--runs", runs, "--pins", pins, "--json")
            done = pinned.run("run", profile, *words, QWEN_API_KEY_FILE=str(key))
            assert done.stdout, done.stderr
            answer = json.loads(done.stdout.splitlines()[-1])
            assert "run_dir" in answer, done.stderr
            found[profile] = Ran(done.returncode, answer, done.stdout + done.stderr, pins)
        yield found


def test_every_rollout_of_every_entry_is_scored_in_a_container_with_its_network_cut(
    ran: dict[str, Ran],
) -> None:
    for profile, cuts in CUTS.items():
        found = ran[profile]
        assert found.code == 0, found.printed
        counts = found.answer["counts"]
        assert counts["planned"] == sum(cut.tasks for cut in cuts.values())
        assert counts["scored"] + counts["truncated"] == counts["planned"], found.printed
        assert (found.answer["runtime"], found.answer["egress"]) == ("docker", "cut")
        rows = read_jsonl(found.run / "samples.jsonl")
        assert {row["entry"] for row in rows} == set(cuts)
        plan = json.loads((found.run / "resolved.json").read_text())
        assert (plan["pins"], plan["dialect"]) == ("test", "eval")


def test_data_inputs_and_server_are_recorded_before_and_after_each_entry(ran: dict[str, Ran]) -> None:
    provenance = ran["quick"].run / "provenance"
    before = json.loads((provenance / "inputs.before.json").read_text())["inputs"]
    for entry in CUTS["quick"]:
        after = json.loads((provenance / f"inputs.after-{entry}.json").read_text())["inputs"]
        own = f"data:{entry}/"
        kept = {name: it for name, it in before.items() if not name.startswith("data:") or own in name}
        assert after == kept
        assert any(name.startswith(own) for name in after)
        for when in ("before", "after"):
            assert (provenance / "server" / f"{entry}.{when}.json").is_file()
        route = json.loads((provenance / "launch" / entry / "route.json").read_text())
        assert route["data"] == entry
    walks = ran["agentic"].run / "provenance/launch/graphwalks"
    assert json.loads((walks / "route.json").read_text())["link"]["name"] == "openai/graphwalks"
    assert "/.venv" not in json.loads((walks / "command.json").read_text())["working_directory"]


def test_the_audit_computes_everything_again_and_never_takes_it_for_pinned(
    pinned: Site, ran: dict[str, Ran]
) -> None:
    for profile, found in ran.items():
        done = pinned.run("audit", found.run, "--pins", found.pins, "--json")
        assert done.returncode == 5, profile
        assert json.loads(done.stdout.splitlines()[-1])["failed"] == ["pins"], done.stdout


def test_a_container_without_its_limit_is_found_in_the_record(
    pinned: Site, ran: dict[str, Ran], tmp_path: Path
) -> None:
    found = ran["smoke"]
    copy = tmp_path / found.run.name
    shutil.copytree(found.run, copy, symlinks=True)
    path = copy / "provenance/containers/aime24.json"
    value = json.loads(path.read_text())
    for container in value["containers"]:
        container["pids"] = None
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    done = pinned.run("audit", copy, "--pins", found.pins, "--json")
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["failed"] == ["files", "pins", "isolation"], done.stdout
    (isolation,) = [check for check in answer["checks"] if check["name"] == "isolation"]
    assert all("is not held to its limit of processes" in line for line in isolation["evidence"])


def test_the_key_stands_in_no_file_of_a_record(ran: dict[str, Ran]) -> None:
    for found in ran.values():
        assert KEY not in found.printed
        for path in found.run.rglob("*"):
            if path.is_file() and not path.is_symlink():
                assert KEY.encode() not in path.read_bytes(), path
