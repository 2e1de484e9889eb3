"""Suites are read as they are written: targets, jobs over defaults, lists; every fault of one is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import WHOLE, changed, dump, refusal, write

from assay.digest import value_digest
from assay.errors import ConfigurationError
from assay.paths import CONFIGS, ROOT
from assay.suite.read import names, read_suite, split
from assay.suite.suite import Suite


@pytest.fixture
def whole(tmp_path: Path) -> Suite:
    return read_suite(str(write(tmp_path)), {}).suite


def test_a_suite_is_its_targets_and_jobs_over_the_defaults(whole: Suite) -> None:
    assert (whole.name, whole.pins, whole.running.max_parallel_jobs) == ("try", "production", 2)
    local, nobody = whole.targets
    assert (local.name, local.base_url) == ("local", ("http://127.0.0.1:18080/v1",))
    assert (local.request.timeout_seconds, local.request.retries) == (60.0, 1)
    assert nobody.protocol == "none"
    first, second = whole.jobs
    assert (first.target, second.target) == ("local", "nobody")
    assert whole.target(second) == nobody
    assert (first.generation.temperature, first.generation.max_tokens) == (0.6, 16384)
    assert first.generation.extra_body == {"top_k": 20, "enable_thinking": True}
    assert second.generation.extra_body == {"top_k": 20}
    assert (first.repeats, second.repeats) == (1, 2)
    assert first.backend_args == {"items": 4}


def test_the_file_is_kept_as_it_is_written(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text("# why\n" + path.read_text("utf-8"), "utf-8")
    asked = read_suite(str(path), {})
    assert asked.path == path
    assert asked.text == path.read_text("utf-8")


def test_a_list_names_the_jobs_their_order_and_only_the_targets_that_they_need(tmp_path: Path) -> None:
    path = write(tmp_path)
    one = read_suite(f"{path}:one", {}).suite
    assert (one.name, [job.id for job in one.jobs]) == ("try.one", ["second"])
    assert [target.name for target in one.targets] == ["nobody"]
    turned = read_suite(f"{path}:turned", {}).suite
    assert [job.id for job in turned.jobs] == ["second", "first"]
    assert [target.name for target in turned.targets] == ["local", "nobody"]
    every = read_suite(f"{path}:all", {}).suite
    assert every == read_suite(str(path), {}).suite
    assert one.digest != every.digest != turned.digest


def test_the_digest_is_of_what_decides_a_result_alone(tmp_path: Path, whole: Suite) -> None:
    slower = read_suite(str(write(tmp_path, ("running.heartbeat_seconds", 900))), {}).suite
    assert slower != whole
    assert slower.digest == whole.digest
    other = read_suite(str(write(tmp_path, ("job.0.generation.max_tokens", 16385))), {}).suite
    assert other.digest != whole.digest


def test_a_resolved_suite_is_read_again_as_the_same(tmp_path: Path, whole: Suite) -> None:
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps(whole.model_dump(mode="json")), "utf-8")
    asked = read_suite(str(path), {})
    assert asked.suite == whole
    assert (
        asked.suite.digest == whole.digest == value_digest(whole.model_dump(mode="json", exclude={"running"}))
    )
    assert "a resolved suite has no lists" in refusal(f"{path}:one")


RESOLVED = [
    ("pins", "test", 'it is of the pin set "test"'),
    ("schema_version", "assay/suite/v0", "schema_version: Input should be 'assay/suite/v1'"),
    ("jobs", [], "jobs: Tuple should have at least 1 item"),
    ("name", "../evil", "name: String should match pattern"),
    ("extra", 1, "extra: unknown key"),
]


@pytest.mark.parametrize(("key", "value", "said"), RESOLVED)
def test_a_resolved_suite_of_another_form_is_refused(
    tmp_path: Path, whole: Suite, key: str, value: object, said: str
) -> None:
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps({**whole.model_dump(mode="json"), key: value}), "utf-8")
    assert said in refusal(path)


def test_a_resolved_suite_is_held_to_the_rules_of_addresses_too(tmp_path: Path, whole: Suite) -> None:
    value = whole.model_dump(mode="json")
    value["targets"][0]["base_url"] = ["http://127.0.0.1:18080/v2"]
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps(value), "utf-8")
    assert "it does not end in /v1" in refusal(path)


def test_a_served_model_is_asked_for_by_its_name(tmp_path: Path) -> None:
    served = {"serve": "smollm2-135m", "max_concurrency": 2}
    suite = read_suite(str(write(tmp_path, ("target.local", served))), {}).suite
    assert (suite.targets[0].serve, suite.targets[0].model) == ("smollm2-135m", "smollm2-135m")
    said = refusal(write(tmp_path, ("target.local", {**served, "serve": "smolm2"})))
    assert "target.local.serve: models.lock has no model 'smolm2'; did you mean \"smollm2-135m\"?" in said
    said = refusal(write(tmp_path, ("target.local", {**served, "model": "other"})))
    assert "target.local.model: a served model is called by its name" in said


def test_several_endpoints_are_one_pool_and_each_is_named_once(tmp_path: Path) -> None:
    pool = ["http://127.0.0.1:1/v1/", "http://127.0.0.1:2/v1"]
    suite = read_suite(str(write(tmp_path, ("target.local.base_url", pool))), {}).suite
    assert suite.targets[0].base_url == ("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
    twice = ["http://example.test/v1", "http://EXAMPLE.test:80/v1/"]
    assert "it names one endpoint twice" in refusal(write(tmp_path, ("target.local.base_url", twice)))


# Every level of the file: where, what is put there, and what is said.
UNKNOWN = [
    ("targets", {}, 'targets: unknown key; did you mean "target"? known: defaults, description, job,'),
    ("jobs", [], 'jobs: unknown key; did you mean "job"?'),
    ("name", "x", "name: unknown key; known: defaults"),
    ("running.max_parallel_job", 1, 'running.max_parallel_job: unknown key; did you mean "max_par'),
    ("running.budget", {"tokns": 1}, 'running.budget.tokns: unknown key; did you mean "tokens"?'),
    ("running.wall_seconds", 1, "running.wall_seconds: unknown key; it belongs into budget"),
    ("target.local.base-url", "x", 'target.local.base-url: unknown key; did you mean "base_url"?'),
    ("target.local.retries", 1, "target.local.retries: unknown key; it belongs into request"),
    ("target.local.request.retry", 1, 'target.local.request.retry: unknown key; did you mean "retries"?'),
    ("target.local.name", "x", "target.local.name: the table's own name is the target's"),
    ("defaults.id", "x", "defaults.id: unknown key; known: backend, budget, generation, limit,"),
    ("defaults.backend_args", {}, "defaults.backend_args: unknown key"),
    ("defaults.max_tokens", 1, "defaults.max_tokens: unknown key; it belongs into generation"),
    ("defaults.generation.temprature", 1, 'defaults.generation.temprature: unknown key; did you mean "temp'),
    ("job.0.temperature", 1, "job.first.temperature: unknown key; it belongs into generation"),
    ("job.0.dataste", "x", 'job.first.dataste: unknown key; did you mean "dataset"?'),
    ("job.1.generation", {"max_token": 1}, 'job.second.generation.max_token: unknown key; did you mean "max'),
    ("job.1.budget", {"seconds": 1}, 'job.second.budget.seconds: unknown key; did you mean "wall_seconds"?'),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "said"), UNKNOWN)
def test_an_unknown_key_is_told_at_every_level_with_the_nearest_or_where_it_belongs(
    tmp_path: Path, place: str, value: object, said: str
) -> None:
    assert said in refusal(write(tmp_path, (place, value)))


WRONG = [
    ("description", 3, "description: say in one sentence"),
    ("description", "  ", "description: say in one sentence"),
    ("running", 3, "running: it is a number, and a table belongs there"),
    ("running.max_parallel_jobs", "2", "running.max_parallel_jobs: Input should be a valid integer"),
    ("running.max_parallel_jobs", True, "running.max_parallel_jobs: Input should be a valid integer"),
    ("running.max_parallel_jobs", 2.0, "running.max_parallel_jobs: Input should be a valid integer"),
    ("running.max_parallel_jobs", 0, "running.max_parallel_jobs: Input should be greater than 0"),
    ("running.retention", "error", "running.retention: Input should be 'all', 'errors' or 'none'"),
    ("running.heartbeat_seconds", float("nan"), "running.heartbeat_seconds: nan is no number"),
    ("running.memory_gib", float("inf"), "running.memory_gib: inf is no number"),
    ("target", [], "target: it is a list, and tables belong there: [target.NAME]"),
    ("target.local", "x", "target.local: it is a text, and a table belongs there"),
    ("target.local.base_url", 3, "target.local.base_url: Input should be a valid array"),
    ("target.local.base_url", [3], "target.local.base_url[1]: Input should be a valid string"),
    ("target.local.base_url", [], "target.local: give either base_url, or serve"),
    ("target.local.base_url", ["http://x/v1", "http://x/v1"], "base_url names one endpoint twice"),
    ("target.local.serve", "smollm2-135m", "target.local: give either base_url, or serve"),
    ("target.local.model", "", "target.local: model is missing"),
    ("target.local.model", " m", "target.local.model: it begins or ends with a space"),
    ("target.local.model", "a\x1b[2Jb", "target.local.model: it begins or ends with a space, or holds"),
    ("target.local.max_concurrency", 0, "target.local.max_concurrency: Input should be greater than 0"),
    ("target.local.max_concurrency", "3", "target.local.max_concurrency: Input should be a valid integer"),
    ("target.local.api_key_env", "model key", "target.local.api_key_env: String should match pattern"),
    ("target.local.api_key_env", "MODEL", "target.local.api_key_env: a key's variable is called so"),
    ("target.local.key_file", "/absolute/key", "target.local: give either api_key_env or key_file"),
    ("target.local.request.retries", 21, "target.local.request.retries: Input should be less than or equal"),
    ("target.local.provenance.built", 3, "target.local.provenance.built: Input should be a valid string"),
    ("target.nobody.key_file", "/x", "target.nobody: a target with the protocol none has no endpoint"),
    ("target.Upper", {"max_concurrency": 1}, "target.Upper.name: String should match pattern"),
    ("job", [], "job: there is none; each job is a table of its own: [[job]]"),
    ("job", "x", "job: there is none"),
    ("job", 3, "job: there is none"),
    ("job", {"id": "x"}, "job: there is none"),
    ("job", [3], "job[1]: it is a number, and a table belongs there"),
    ("job.0.id", "second", "job.second: two jobs have this id"),
    ("job.0.id", 3, "job[1].id: Input should be a valid string"),
    ("job.0.id", "provenance", "job.provenance: the id 'provenance' is a name of the run's own"),
    ("job.0.id", "lock", "job.lock: the id 'lock' is a name of the run's own"),
    ("job.0.target", "locl", "job.first: target: there is no 'locl'; did you mean \"local\"?"),
    ("job.0.limit", "4", "job.first.limit: Input should be a valid integer"),
    ("job.0.limit", 0, "job.first.limit: Input should be greater than 0"),
    ("job.0.repeats", 1025, "job.first.repeats: Input should be less than or equal to 1024"),
    ("job.0.dataset", "../../etc", "job.first.dataset: String should match pattern"),
    ("job.0.dataset", "a/b/c", "job.first.dataset: String should match pattern"),
    ("job.0.generation.temperature", -1, "job.first.generation.temperature: Input should be greater"),
    ("job.0.generation.temperature", "0", "job.first.generation.temperature: Input should be a valid number"),
    ("job.0.generation.top_p", 1.5, "job.first.generation.top_p: Input should be less than or equal to 1"),
    ("job.0.generation.stop", "x", "job.first.generation.stop: Input should be a valid array"),
    ("job.0.generation.extra_body", 3, "job.first.generation.extra_body: Input should be an object"),
    ("job.0.backend_args.items", float("nan"), "job[1].backend_args.items: nan is no number"),
    ("job.0.backend_args.items", 2**63, "job[1].backend_args.items: the number has more than 64 bits"),
    ("job.0.backend_args.name", "a\x00b", "job[1].backend_args.name: it holds a NUL"),
    ("list", [], "list: it is a list, and tables belong there: [list.NAME]"),
    ("list.all", ["first"], "list.all: this list is always there"),
    ("list.Upper", ["first"], "list.Upper: a name is lower-case letters"),
    ("list.none", [], "list.none: it is not a list of jobs' ids"),
    ("list.none", "first", "list.none: it is not a list of jobs' ids"),
    ("list.other", ["frist"], "list.other: there is no job 'frist'; did you mean \"first\"?"),
    ("list.other", [3], "list.other: there is no job 3"),
    ("list.other", [["first"]], "list.other: there is no job ['first']"),
    ("list.other", ["first", "first"], "list.other: it names 'first' twice"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "said"), WRONG)
def test_what_is_wrong_is_told_by_its_place(tmp_path: Path, place: str, value: object, said: str) -> None:
    assert said in refusal(write(tmp_path, (place, value)))


def test_every_fault_of_a_file_is_told_at_once_also_outside_the_chosen_list(tmp_path: Path) -> None:
    path = write(tmp_path, ("job.0.limit", 0), ("target.local.max_concurrency", 0), ("runing", {}))
    said = refusal(f"{path}:one")
    for part in ("job.first.limit", "target.local.max_concurrency", "runing: unknown key"):
        assert part in said
    assert said.endswith(f"edit {path}")


def test_of_very_many_faults_the_first_are_told(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, ("list.other", [f"job-{number}" for number in range(1000)])))
    assert "there is no job 'job-0'" in said
    assert "and 980 more" in said
    assert "job-20'" not in said


def test_a_date_is_neither_text_nor_number(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text("utf-8") + "[target.local.provenance]\nbuilt = 2026-11-29\n", "utf-8")
    assert "not valid TOML" in refusal(path)  # the table stands there already
    text = dump({key: value for key, value in WHOLE.items() if key != "job"})
    path.write_text(text + '[[job]]\nid = "x"\nbackend_args = {on = 2026-11-29}\n', "utf-8")
    assert "job[1].backend_args.on: a date is neither text nor number" in refusal(path)


@given(st.text(max_size=24))
def test_an_id_is_one_path_segment_of_plain_letters_or_it_is_refused(id: str) -> None:
    """Mistake 1 of the coordinators that were seen: an id wrote outside its run."""
    from assay.suite.assemble import assemble
    from assay.suite.faults import FaultyError

    value = changed(("job.0.id", id), ("list", {}))
    try:
        job = assemble(value, "try", None).jobs[0]
    except FaultyError:
        return
    run = Path("/runs/one")
    assert (run / job.id).parent == run
    assert job.id.isascii()
    assert job.id == job.id.lower() == id


@pytest.mark.parametrize(
    "id",
    [
        "../../evil",
        "..",
        ".",
        "",
        "/etc",
        "a/b",
        "a\\b",
        "a\n",
        "a b",
        "A",
        "-a",
        "\u0430ime",
        "aime\u200b",
        "a" * 65,
    ],
)
def test_an_id_that_leads_elsewhere_or_looks_like_another_is_refused(tmp_path: Path, id: str) -> None:
    assert "id: String should match pattern" in refusal(write(tmp_path, ("job.0.id", id)))


def test_a_reference_is_a_file_a_name_or_either_with_a_list(tmp_path: Path) -> None:
    assert split("mock") == ("mock", None)
    assert split("mock:one_two") == ("mock", "one_two")
    assert split("mock:all") == ("mock", None)
    assert split("/a:b/mock.toml") == ("/a:b/mock.toml", None)
    assert split("mock:") == ("mock:", None)
    assert split(":one") == (":one", None)
    odd = write(tmp_path, name="a.toml:one")
    assert split(str(odd)) == (str(odd), None)


def test_a_list_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    said = refusal(f"{write(tmp_path)}:trned")
    assert 'there is no list "trned"; did you mean "turned"? known: all, one, turned' in said


def test_a_name_that_is_not_there_is_told_with_the_nearest_suite_or_profile() -> None:
    assert 'there is no suite "moc"; did you mean "mock"?' in refusal("moc")
    assert 'there is no suite "dmo"; did you mean "demo"?' in refusal("dmo")
    assert 'there is no suite "quick"' in refusal("quick:aime25")


@pytest.mark.parametrize(
    "name",
    ["", ":", ":one", "..", "../suites/mock", "/etc", "demo/", "demo:one", "Mock", "mock\0", "m\u043eck"],
)
def test_what_only_looks_like_a_name_is_none(name: str) -> None:
    assert "there is no suite" in refusal(name)


def test_a_file_without_its_ending_is_told_so(tmp_path: Path) -> None:
    path = write(tmp_path, name="try.txt")
    for reference in (path, f"{path}:one"):
        assert "the name of a suite's file ends in .toml" in refusal(reference)


def test_a_file_is_called_like_a_path_segment(tmp_path: Path) -> None:
    for name in ("Upper.toml", "two words.toml", "sm\u00f6l.toml", "a_b.toml", ".toml"):
        assert "a suite is called like its file" in refusal(write(tmp_path, name=name))


def test_the_suites_in_the_folder_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert names() == sorted(path.stem for path in (CONFIGS / "suites").glob("*.toml"))
    for name in names():
        asked = read_suite(name, {})
        assert asked.suite.name == name
        assert asked.path == CONFIGS / "suites" / f"{name}.toml"
    assert ROOT / "eval/configs/suites" == CONFIGS / "suites"


def test_a_profile_is_a_suite_of_one_target_with_a_job_an_entry() -> None:
    suite = read_suite("quick", {}).suite
    assert [job.id for job in suite.jobs] == ["aime24", "aime25", "aime26", "i3-logic", "livecodebench"]
    assert {job.backend for job in suite.jobs} == {"verifiers"}
    assert [job.dataset for job in suite.jobs][:2] == ["quick/aime24", "quick/aime25"]
    (target,) = suite.targets
    assert (target.base_url, target.model) == (("http://127.0.0.1:18020/v1",), "qwen3.8-27b")
    one = read_suite("quick/aime25", {}).suite
    assert (one.name, [job.id for job in one.jobs]) == ("quick.aime25", ["aime25"])
    own = read_suite("demo", {}).suite
    assert (own.targets[0].serve, own.targets[0].base_url) == ("smollm2-135m", ())
    twenty = read_suite("full", {}).suite
    assert {job.id: job.repeats for job in twenty.jobs}["aime24"] == 20


def test_a_profile_takes_its_servers_key_from_the_file_that_a_variable_names() -> None:
    environ = {"ASSAY_API_KEY_FILE": "/absolute/key"}
    assert read_suite("quick", environ).suite.targets[0].key_file == Path("/absolute/key")
    assert read_suite("demo", environ).suite.targets[0].key_file is None


def test_an_entry_that_a_profile_does_not_have_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match='has no entry "aime27"'):
        read_suite("quick/aime27", {})


def test_the_suite_in_the_documentation_is_one(tmp_path: Path) -> None:
    told = (ROOT / "docs/formats.md").read_text("utf-8")
    (text,) = re.findall(r"^## Suites .*?^```toml\n(.*?)^```", told, re.DOTALL | re.MULTILINE)
    path = tmp_path / "told.toml"
    path.write_text(text, "utf-8")
    suite = read_suite(f"{path}:smoke", {}).suite
    assert (suite.targets[0].api_key_env, suite.jobs[0].limit) == ("MODEL_API_KEY", 2)
    assert suite.jobs[0].generation.temperature == 0
