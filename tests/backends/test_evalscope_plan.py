"""What a job for EvalScope will ask, needs and may not say, told without starting EvalScope."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evalscope_data as made
import pytest

from assay.backends import evalscope_child
from assay.backends.evalscope import EvalScope, environment_of
from assay.backends.evalscope_arguments import Arguments
from assay.backends.evalscope_benchmarks import BENCHMARKS, BFCL_GROUPS
from assay.errors import ConfigurationError, PrerequisiteError
from assay.setup import ENVIRONMENTS
from assay.suite.job import Generation, Job
from assay.suite.target import Target

TARGET = Target(name="there", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=2)
LOCAL = {"local_data": "/nowhere"}
WHOLE_BFCL = {"allow_network_downloads": True}


def job(dataset: str, arguments: dict[str, Any] | None = None, **more: Any) -> Job:
    return Job.model_validate(
        {
            "id": "j",
            "backend": "evalscope",
            "dataset": dataset,
            "target": "there",
            "backend_args": arguments or {},
            **more,
        }
    )


def total(asked: Job) -> int | None:
    EvalScope().validate(asked, TARGET)
    return EvalScope().plan(asked, TARGET).total


@pytest.mark.parametrize(
    ("asked", "samples"),
    [
        (job("aime25"), 30),
        (job("aime26"), 30),
        (job("gpqa_diamond"), 198),
        (job("ifbench"), 300),
        (job("erqa"), 400),
        (job("real_world_qa"), 765),
        (job("needle_haystack"), 200),
        (job("bfcl_v4", WHOLE_BFCL), 5106),
        (job("erqa", {"subset_list": ["Pointing", "Other"]}), 48),
        # The limit is of each subset, and no subset gives more than it has.
        (job("erqa", limit=20), 7 * 20 + 14),
        (job("aime25", limit=4, repeats=3), 12),
        (job("needle_haystack", {"context_lengths": {"min": 65536, "max": 65536, "intervals": 1}}), 20),
        (job("aime25", LOCAL), None),
        (job("gsm8k", LOCAL), None),
        (job("general_mcq", LOCAL), None),
    ],
)
def test_a_plan_tells_how_many_samples_as_far_as_that_is_known(asked: Job, samples: int | None) -> None:
    assert total(asked) == samples


def test_native_lengths_at_eleven_depths_in_two_languages_are_66_samples() -> None:
    depths = {"min": 0, "max": 100, "intervals": 11}
    lengths = [{"min": n, "max": n, "intervals": 1} for n in (65536, 131072, 260000)]
    jobs = [job("needle_haystack", {"context_lengths": each, "depths": depths}) for each in lengths]
    assert [total(each) for each in jobs] == [22, 22, 22]


def test_the_users_own_files_are_counted(tmp_path: Path) -> None:
    data = str(made.choices(made.choices(tmp_path, 5), 2, "more"))
    asked = {"local_data": data, "subset_list": ["demo", "more"]}
    assert total(job("general_mcq", asked)) == 7
    assert total(job("general_mcq", asked, limit=3, repeats=2)) == 10


def test_bfcl_has_22_subsets_and_one_of_them_is_in_no_group() -> None:
    subsets = BENCHMARKS["bfcl_v4"].subsets
    assert len(subsets) == 22
    grouped = {name for group in BFCL_GROUPS.values() for name in group}
    assert set(subsets) - grouped == {"live_relevance"}


def test_the_counts_are_those_that_the_evaluator_ships() -> None:
    """Of the benchmarks that EvalScope has counted itself; its table comes with its package."""
    site = next(ENVIRONMENTS["evalscope"].directory.glob("lib/python3.*/site-packages"))
    for name, known in BENCHMARKS.items():
        found = json.loads((site / f"evalscope/benchmarks/_meta/{name}.json").read_bytes())
        counts = {each["name"]: each["sample_count"] for each in found["statistics"]["subset_stats"]}
        assert dict(known.subsets) == counts, name


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (job("aime25", {"few_shot_nm": 0}), 'did you mean "few_shot_num"'),
        (job("bfcl_v4", {"subset_list": ["simple_pyhton"]}), 'did you mean "simple_python"'),
        (job("bfcl_v4", {"subset_list": ["irrelevance", "irrelevance"]}), "twice"),
        (job("aime2"), 'did you mean "aime2'),
        (job("general_mcq", {"allow_network_downloads": True}), "data of your own"),
        (job("aime25", {"is_fc_model": False}), "belongs to the dataset bfcl_v4"),
        (job("aime25", {"tokenizer": "/x"}), "belongs to the dataset needle_haystack"),
        (job("bfcl_v4", {"subset_list": ["irrelevance"], **LOCAL}), "come with it"),
        (job("bfcl_v4"), "memory_vector downloads a model"),
        (job("bfcl_v4", {"subset_list": ["multi_turn_base"]}, repeats=2), "cannot be repeated"),
        (job("needle_haystack", {"depths": {"min": 5, "max": 4, "intervals": 2}}), "min is 5 and max 4"),
        (job("needle_haystack", {"depths": {"min": 0, "max": 9, "intervals": 1}}), "set min to max"),
        (job("aime25", {"seed": True}), "seed"),
    ],
)
def test_what_contradicts_the_benchmark_or_itself_is_refused(asked: Job, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        EvalScope().validate(asked, TARGET)
    assert said in f"{refused.value.what} {refused.value.why}"
    assert refused.value.exit_code == 2


def test_single_turns_of_bfcl_may_be_repeated() -> None:
    assert total(job("bfcl_v4", {"subset_list": ["simple_java"]}, repeats=3)) == 300


def test_a_target_that_nobody_answers_at_is_refused() -> None:
    silent = Target(name="there", protocol="none", max_concurrency=1)
    with pytest.raises(ConfigurationError, match="nobody answers"):
        EvalScope().validate(job("aime25"), silent)


def test_searching_the_web_wants_its_key_by_name_and_says_so_first() -> None:
    asked = job("bfcl_v4", {"subset_list": ["web_search_base"]})
    assert "SERPAPI_API_KEY" in " ".join(EvalScope().plan(asked, TARGET).requirements)
    with pytest.raises(ConfigurationError, match="SERPAPI_API_KEY is not set"):
        EvalScope().require(asked, TARGET, {})
    EvalScope().require(asked, TARGET, {"SERPAPI_API_KEY": "of a test"})


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    asked = job("aime25", {"local_data": str(tmp_path / "none")})
    with pytest.raises(PrerequisiteError, match="none, which is not there"):
        EvalScope().require(asked, TARGET, {})
    assert EvalScope().data(job("aime25")) == ("evalscope-aime25",)
    assert EvalScope().data(asked) == ()
    assert EvalScope().data(job("ifbench")) == ("evalscope-ifbench", "nltk-ifbench")


def test_ifbench_without_the_data_that_its_checks_read_is_refused_before_it_asks(tmp_path: Path) -> None:
    data = str(made.instructions(tmp_path / "data"))
    (tmp_path / "nltk/tokenizers/punkt_tab").mkdir(parents=True)
    asked = job("ifbench", {"local_data": data, "nltk_data": str(tmp_path / "nltk")})
    with pytest.raises(PrerequisiteError, match="corpora/stopwords is not in"):
        EvalScope().require(asked, TARGET, {})
    whole = str(made.nltk(tmp_path / "whole"))
    EvalScope().require(job("ifbench", {"local_data": data, "nltk_data": whole}), TARGET, {})


def test_a_tokenizer_that_the_environment_names_is_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job("needle_haystack", {"local_data": str(made.haystack(tmp_path / "data"))})
    monkeypatch.delenv("ASSAY_TOKENIZER", raising=False)
    assert "the variable ASSAY_TOKENIZER" in EvalScope().plan(asked, TARGET).requirements
    with pytest.raises(ConfigurationError, match="where to find the model"):
        EvalScope().require(asked, TARGET, {})
    folder = made.tokenizer(tmp_path / "tokenizer")
    monkeypatch.setenv("ASSAY_TOKENIZER", str(folder))
    EvalScope().require(asked, TARGET, {"ASSAY_TOKENIZER": str(folder)})
    # Hashing the whole environment is the set-up's business, and tested there.
    state = SimpleNamespace(digest="0" * 64)
    monkeypatch.setattr("assay.setup.check", lambda environment: state)
    before = EvalScope().inputs(asked, TARGET)
    assert f"local:{folder}" in before
    (folder / "tokenizer_config.json").write_text("{}", "utf-8")
    after = EvalScope().inputs(asked, TARGET)
    assert {name for name in before if before[name] != after[name]} == {f"local:{folder}"}


def test_only_memory_vector_needs_the_environment_with_torch() -> None:
    def of(subsets: list[str]) -> str:
        return environment_of(job("bfcl_v4"), Arguments(subset_list=tuple(subsets)))

    assert of(["memory_kv", "simple_java"]) == "evalscope"
    assert of(["memory_kv", "memory_vector"]) == "evalscope-vector"
    assert of([]) == "evalscope-vector"


def test_options_that_evalscope_has_no_word_for_go_into_the_body() -> None:
    asked = job("aime25")
    whole = Generation(
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        min_p=0.1,
        max_tokens=5,
        seed=1,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        stop=("a",),
        reasoning_effort="minimal",
        extra_body={"mark": 1},
    )
    options, more = evalscope_child.generation(asked.model_copy(update={"generation": whole}))
    assert set(options) == {
        *("temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "stop_seqs")
    }
    assert more == {
        "top_k": 20,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "reasoning_effort": "minimal",
        "mark": 1,
    }
    low = whole.model_copy(update={"reasoning_effort": "low"})
    assert (
        evalscope_child.generation(asked.model_copy(update={"generation": low}))[0]["reasoning_effort"]
        == "low"
    )


def test_evalscope_reads_links_so_that_nothing_it_removes_is_gone(tmp_path: Path) -> None:
    source = made.jsonl(tmp_path / "pinned/deep/test.jsonl", [{"a": 1}]).parent
    (source / "dataset_infos.json").write_text("{}", "utf-8")
    folder = evalscope_child.linked(source, tmp_path / "links")
    assert (folder / "deep/test.jsonl").read_text("utf-8") == '{"a": 1}\n'
    (folder / "dataset_infos.json").unlink()
    assert (source / "dataset_infos.json").is_file()
