"""docs/api.md: its examples run, its paths are those there are, its fields are those of the schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from server.app import ROUTES
from server.chatschema import ChatRequest
from server.textschema import CompletionRequest
from tests.server.http import toy as toy_model
from tests.server.http.running import command_server, toy_server

TEXT = (Path(__file__).parents[3] / "docs" / "api.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
ADDRESS = "http://127.0.0.1:8080"


def run(url: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for example in EXAMPLES:
        exec(compile(example.replace(ADDRESS, url), "docs/api.md", "exec"), namespace)
    return namespace


def test_the_examples_run_on_a_model_with_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) >= 8
    with toy_server(context=4096, template=toy_model.TOOLS) as toy:
        run(toy.url)
    assert "weather {'city'" in capsys.readouterr().out


@pytest.mark.slow
def test_the_examples_run_on_the_real_model(model_path: Path, tmp_path: Path) -> None:
    with command_server(model_path, tmp_path, "--slots", "2", "--context", "1024") as server:
        made = run(server.url)
    assert made["MODEL"] == model_path.stem


def test_every_path_and_every_field_is_told() -> None:
    for _, path, _ in ROUTES:
        assert path.replace("{name:path}", "NAME") in TEXT, path
    for field in {*ChatRequest.model_fields, *CompletionRequest.model_fields} - {"model", "user"}:
        assert f"`{field}`" in TEXT or f"`{field}: " in TEXT or f"`{field}." in TEXT, field
