"""The document's suites ask what the document says, and whatever could be otherwise is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import suite_table

from assay.paths import CONFIGS
from assay.profile import load_profiles
from assay.suite.check import check_suite, plan_suite
from assay.suite.read import names, read_suite

SUITES = CONFIGS / "suites"


def test_the_suites_are_what_the_table_says() -> None:
    assert list(suite_table.problems(SUITES)) == []


def test_the_table_holds_the_sizes_that_the_document_gives() -> None:
    """Taken from the document by hand, not from the table's own helpers."""
    sizes = {
        ("capability", "reasoning"): 30 + 30 + 198,
        ("capability", "bfcl_full"): 5106,
        ("capability", "smoke"): 2 + 2 + 2 + 5 * 2,
        ("qwen3-6-27b-reasoning", None): 258,
        ("qwen3-6-35b-aime", "full"): 60,
        ("qwen3-6-35b-gpqa", None): 198,
        ("qwen3-6-35b-needle-haystack", "standard"): 200,
        ("qwen3-6-35b-needle-haystack", "native_long"): 66,
        ("qwen3-8-27b-nvfp4-reasoning", "text"): 300 + 30 + 30 + 198,
        ("qwen3-8-27b-nvfp4-reasoning", "multimodal"): 400 + 765,
        ("qwen3-8-27b-groupwise-reasoning", "text"): 558,
        ("qwen3-8-27b-groupwise-reasoning", "multimodal"): 1165,
    }
    assert {key: suite_table.samples(*key) for key in sizes} == sizes


@pytest.mark.parametrize("name", suite_table.TABLE)
def test_each_suite_and_list_is_valid_and_expects_what_the_table_says(name: str) -> None:
    for chosen in (None, *suite_table.TABLE[name].lists):
        suite = read_suite(name if chosen is None else f"{name}:{chosen}", {}).suite
        check_suite(suite)
        planned = {item.job.id: item for item in plan_suite(suite)}
        rows = suite_table.TABLE[name].jobs
        assert {job: item.expected.total for job, item in planned.items()} == {
            job: rows[job].samples for job in planned
        }
        for job, item in planned.items():
            assert item.slots == (rows[job].slots or suite_table.TABLE[name].slots)


def test_no_suite_is_called_like_a_profile_and_each_is_valid() -> None:
    assert not set(names()) & load_profiles().keys()
    for name in names():
        check_suite(read_suite(name, {}).suite)


SPOILED = [
    ("capability.toml", "max_tokens = 16384", "max_tokens = 8192", "aime25-smoke: generation: is"),
    ("capability.toml", "limit = 2 ", "limit = 3 ", "bfcl-v4-smoke: limit: is 3, expected 2"),
    ("capability.toml", "allow_network_downloads = true", "", "bfcl-v4: backend_args: is"),
    ("capability.toml", 'bfcl_full = ["bfcl-v4"]', 'bfcl_full = ["bfcl-v4-smoke"]', "lists: is"),
    ("capability.toml", "timeout_seconds = 3600", "timeout_seconds = 360", "target: is"),
    ("qwen3-6-27b-reasoning.toml", "temperature = 0.6", "temperature = 0.7", "aime25: generation: is"),
    ("qwen3-6-35b-gpqa.toml", "few_shot_num = 0", "few_shot_num = 5", "gpqa-diamond: backend_args: is"),
    ("qwen3-6-35b-aime.toml", '"qwen3.6-35b-a3b"', '"qwen3.6-35b"', "target: is"),
    ("qwen3-6-35b-needle-haystack.toml", "intervals = 11", "intervals = 10", "long-64k: backend_args: is"),
    ("qwen3-6-35b-needle-haystack.toml", "thinking = false", "thinking = true", "generation: is"),
    ("qwen3-6-35b-needle-haystack.toml", "max = 260000", "max = 262144", "long-260k: backend_args: is"),
    ("qwen3-8-27b-nvfp4-reasoning.toml", "max_concurrency = 2", "max_concurrency = 4", "target: is"),
    ("qwen3-8-27b-groupwise-reasoning.toml", "max_concurrency = 1 ", "max_concurrency = 4 ", "slots: is 4"),
    ("qwen3-8-27b-groupwise-reasoning.toml", "[[job]]", "[[job]]\nrepeats = 4", "ifbench: sets repeats"),
    ("qwen3-8-27b-nvfp4-reasoning.toml", 'dataset = "erqa"', 'dataset = "ifbench"', "erqa: dataset: is"),
    ("qwen3-8-27b-nvfp4-reasoning.toml", "max_parallel_jobs = 1", "max_parallel_jobs = 2", "max_parallel"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "before", "after", "said"), SPOILED)
def test_whatever_differs_from_the_table_is_told(
    tmp_path: Path, file: str, before: str, after: str, said: str
) -> None:
    folder = shutil.copytree(SUITES, tmp_path / "suites")
    text = (folder / file).read_text("utf-8")
    assert before in text
    (folder / file).write_text(text.replace(before, after, 1), "utf-8")
    assert any(said in problem for problem in suite_table.problems(folder))


def test_files_of_no_suite_are_told_and_missing_ones_too(tmp_path: Path) -> None:
    folder = shutil.copytree(SUITES, tmp_path / "suites")
    (folder / "other.toml").write_text("", "utf-8")
    (folder / "capability.toml").unlink()
    assert list(suite_table.problems(folder)) == ["other.toml: is in no table", "capability.toml: is missing"]
