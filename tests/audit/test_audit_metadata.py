"""What Verifiers 0.1 writes of its own settings is held against its launch: it resolves no configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.audit.case import Case
from assay.audit.input_checks import lacking_metadata
from assay.plan import Plan

ENTRY = '[[eval]]\nenv_id = "q"\n\n[eval.env_args]\nsize = 6\n'
LOCAL = """\
temperature = 0.9

[sampling]
temperature = 0.0
max_tokens = 64

[sampling.extra_body]
min_p = 0.0
"""
# As Verifiers 0.1.15.dev17 wrote them for such a launch.
METADATA: dict[str, Any] = {
    "env_id": "q",
    "env_args": {"size": 6},
    "model": "m",
    "base_url": "http://127.0.0.1:1/v1",
    "num_examples": 5,
    "rollouts_per_example": 2,
    "sampling_args": {"n": 1, "extra_body": {"min_p": 0.0}, "temperature": 0.0, "max_tokens": 64},
    "avg_reward": 0.5,
}
GIVEN = {"model": "m", "api_base_url": "http://127.0.0.1:1/v1"}
PLACE = "e/evals/q--m/1f2e3d4c/metadata.json"


def plan() -> Plan:
    return Plan.model_validate(
        {
            "profile": "p",
            "description": "d",
            "pins": "production",
            "evaluator": "q",
            "dialect": "vf-eval-v0",
            "key_variable": "Q_API_KEY",
            "runtime": "none",
            "egress": "not enforced",
            "image": None,
            "docker": {"workdir": "/w", "cpu": 1, "memory": 1},
            "server": {"kind": "other", "base_url": GIVEN["api_base_url"], "model": "m"},
            "entries": [
                {
                    "name": "e",
                    "tasks": 5,
                    "rollouts": 2,
                    "launch": {"local.toml": LOCAL, "entry.toml": ENTRY},
                    "max_concurrent": 1,
                }
            ],
        }
    )


def lacking(run: Path, metadata: dict[str, Any]) -> list[str]:
    path = run / PLACE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(metadata))
    (path.parent / "results.jsonl").write_text("")
    (run / "resolved.json").write_text(plan().model_dump_json())
    case = Case(run)
    (entry,) = case.plan.entries
    return lacking_metadata(case, entry, entry.parts[0], case.plan.native(entry) | GIVEN)


def test_metadata_of_the_launch_lack_nothing(tmp_path: Path) -> None:
    assert lacking(tmp_path, METADATA) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "larger"}, ".model: asked 'm', resolved 'larger'"),
        ({"base_url": "http://elsewhere/v1"}, ".base_url: asked 'http://127.0.0.1:1/v1'"),
        ({"env_id": "easy"}, ".env_id: asked 'q'"),
        ({"env_args": {"size": 5}}, ".env_args.size: asked 6, resolved 5"),
        ({"num_examples": 4}, ".num_examples: asked 5, resolved 4"),
        ({"rollouts_per_example": 1}, ".rollouts_per_example: asked 2, resolved 1"),
        (
            {"sampling_args": {"n": 1, "temperature": 0.7}},
            ".sampling_args.temperature: asked 0.0, resolved 0.7",
        ),
        (
            {"sampling_args": {"n": 1, "temperature": 0.0}},
            ".sampling_args.max_tokens: asked 64, resolved None",
        ),
    ],
)
def test_other_settings_than_those_of_the_launch_are_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    faults = lacking(tmp_path, METADATA | change)
    assert any(fault.startswith(PLACE + said) for fault in faults), faults
