"""The files of the upstream profiles are what the table says, and whatever could be otherwise is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import profile_table
from assay.paths import CONFIGS


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A copy of the profiles that a test may spoil."""
    return shutil.copytree(CONFIGS, tmp_path / "configs")


def test_the_profiles_are_what_the_table_says() -> None:
    assert list(profile_table.problems(CONFIGS)) == []


def test_the_table_holds_the_sizes_that_the_document_gives() -> None:
    """Summed by hand from the document, not from the table's own helpers."""
    rows = {
        name: sum(row.tasks * row.rollouts for row in column.entries.values())
        for name, column in profile_table.TABLE.items()
    }
    assert rows["smoke"] == 3
    assert rows["quick"] == 66
    assert rows["full"] == rows["full-sampled"] == 3 * 600 + 11060 + 908
    assert (rows["tiny"], rows["broad"], rows["diverse"]) == (3, 17, 24)
    assert (rows["agentic"], rows["agentic-full"]) == (24, 680 + 1128 + 1150)
    assert (rows["direct-smoke"], rows["direct-quick"]) == (4, 32)
    assert rows["direct-full"] == 680 + 1128 + 350 + 400


SPOILED = [
    ("local.toml", "temperature = 0.0", "temperature = 0.7", "temperature: is 0.7, expected 0.0"),
    ("local.toml", "top_p = 1.0", "top_p = 1.0\ntop_k = 20", "top_k = 20 is not in the table"),
    ("local.toml", "enable_thinking = true", "enable_thinking = false", "enable_thinking: is False"),
    ("local.toml", "max_concurrent = 1", "max_concurrent = 8", "max_concurrent: is 8, expected 1"),
    ("local.toml", "num_workers = 1", "num_workers = 4", "num_workers: is 4, expected 1"),
    ("local.toml", 'type = "static"', 'type = "elastic"', "type: is 'elastic'"),
    ("local.toml", "push = false", "push = true", "push: is True, expected False"),
    ("local.toml", "allow = []", 'allow = ["*"]', "allow: is ['*'], expected []"),
    ("local.toml", "rollout = 1800.0", "rollout = 180.0", "rollout: is 180.0"),
    ("local.toml", 'UV_LOCKED = "true"', "", "UV_LOCKED is missing"),
    ("local.toml", ":18020/v1", ":8000/v1", "base_url: is"),
    ("local.toml", "QWEN_API_KEY", "OTHER_API_KEY", "api_key_var: is"),
    ("local.toml", "max_turns = 1", "max_turns = 2", "max_turns: is 2"),
    ("direct.toml", "save_to_hf_hub = false", "save_to_hf_hub = true", "save_to_hf_hub: is True"),
    ("smoke/aime24.toml", "shuffle = false", "shuffle = true", "shuffle: is True, expected False"),
    ("smoke/aime24.toml", "num_tasks = 3", "num_tasks = 4", "num_tasks: is 4, expected 3"),
    ("quick/aime25.toml", "num_rollouts = 1", "num_rollouts = 2", "num_rollouts: is 2"),
    ("quick/aime25.toml", 'id = "aime25"', 'id = "aime26"', "id: is 'aime26'"),
    ("quick/i3-logic.toml", "[env", "max_concurrent = 4\n[env", "sets max_concurrent, which is shared"),
    ("quick/i3-logic.toml", "[env", 'model = "other"\n[env', "sets model, which is shared"),
    ("quick/aime24.toml", "[env", "[sampling]\ntemperature = 1.0\n[env", "changes sampling.temperature"),
    ("full/aime24.toml", "num_rollouts = 20", "num_rollouts = 20\nnum_tasks = 29", "num_tasks = 29 is not"),
    ("full/livecodebench.toml", "[env.taskset]", "[env.taskset]\nversion = 5", "version = 5 is not"),
    ("full-sampled/aime26.toml", "top_k = 20", "top_k = 40", "top_k: is 40, expected 20"),
    ("broad/mmlu-pro.toml", "max_tokens = 8192", "max_tokens = 65536", "raises sampling.max_tokens"),
    ("broad/mmlu-pro.toml", "n_shot = 0", "n_shot = 5", "n_shot: is 5, expected 0"),
    ("diverse/i3-logic.toml", "max_tokens = 8192", "max_tokens = 16384", "max_tokens: is 16384"),
    ("agentic/graphwalks.toml", '"exact"', '"f1"', "scoring: is 'f1'"),
    ("agentic/mrcr-v2-64k.toml", "search = false", "search = true", "search: is True"),
    ("agentic/mrcr-v2-64k.toml", "max_turns = 16", "max_turns = 32", "max_turns: is 32"),
    ("agentic/mrcr-v2-256k.toml", "128k-256k", "64k-128k", "context_range: is '64k-128k'"),
    ("agentic-full/mrcr-v2-64k.toml", "needle_count = 8", "needle_count = 4", "needle_count: is 4"),
    ("direct-quick/graphwalks-bfs.toml", "<=262144", "<=65536", "prompt_chars_filter: is '<=65536'"),
    ("direct-full/mrcr-256k.toml", "num_examples = -1", "num_examples = 100", "num_examples: is 100"),
    ("profiles.toml", "tasks = 24", "tasks = 23", "quick asks 65 tasks, not 66"),
    ("profiles.toml", "tasks = 11060", "tasks = 11059", "tasks: is 11059, expected 11060"),
    ("profiles.toml", 'runtimes = ["docker"]', 'runtimes = ["docker", "subprocess"]', "runtimes: is"),
    ("profiles.toml", "first_seed = 0", "first_seed = 1", "first_seed: is 1"),
    ("profiles.toml", "agentic = true", "agentic = false", "agentic: is False"),
    ("profiles.toml", 'evaluator = "direct"', 'evaluator = "prime-envs"', "evaluator: is 'prime-envs'"),
    ("profiles.toml", "tiny", "small", "profiles.toml: small is not in the table"),
    (
        "profiles.toml",
        '[[quick.entry]]\nname = "aime24"',
        '[[quick.entry]]\nname = "graphwalks"',
        "gives the model tools",
    ),
]


@pytest.mark.parametrize(("file", "before", "after", "said"), SPOILED)
def test_whatever_differs_from_the_table_is_told(
    configs: Path, file: str, before: str, after: str, said: str
) -> None:
    path = configs / file
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")
    assert any(said in problem for problem in profile_table.problems(configs))


def test_files_and_folders_of_no_profile_are_told_and_missing_ones_too(configs: Path) -> None:
    (configs / "quick/graphwalks.toml").write_text("num_tasks = 1\n")
    (configs / "extra").mkdir()
    (configs / "full/aime24.toml").unlink()
    told = list(profile_table.problems(configs))
    assert "quick/graphwalks.toml: is no entry of the table" in told
    assert "extra/: is no profile's" in told
    assert "full/aime24.toml: is missing" in told
