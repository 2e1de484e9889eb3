"""`assay validate` and `assay plan`, typed as a user types them: nothing is asked, fetched or loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from written import write

from assay.backends import registry
from assay.backends.mock import Mock
from assay.errors import AssayError, ConfigurationError, PrerequisiteError
from assay.profile import load_profiles
from assay.suite.check import check_runtime, check_suite, plan_suite
from assay.suite.key import target_key
from assay.suite.read import read_suite
from assay.verbs.plan import total

KEY = "canary-key-0451"


def assay(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "100", **variables}
    command = [sys.executable, "-m", "assay.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=False)


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    value = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(value, dict)
    return value


def test_a_valid_suite_is_said_to_be_so() -> None:
    done = assay("validate", "--suite", "mock", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mock: valid; 2 job(s), 1 target(s)\n")
    answer = last(done)
    assert (answer["status"], answer["suite"], answer["jobs"]) == (
        "valid",
        "mock",
        ["accuracy", "unknown-total"],
    )
    assert answer["suite_digest"] == read_suite("mock", {}).suite.digest


def test_the_plan_tells_each_job_and_what_nobody_knows_stays_a_question_mark(tmp_path: Path) -> None:
    done = assay("plan", "--suite", "mock", "--json")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["job", "backend", "dataset", "target", "slots", "expected"] in lines
    assert ["accuracy", "mock", "mock", "nobody", "3", "12", "samples"] in lines
    assert ["unknown-total", "mock", "mock", "nobody", "2", "?", "samples"] in lines
    assert "expected: ? in 2 job(s), 2 at a time" in done.stdout
    answer = last(done)
    assert [job["expected"] for job in answer["jobs"]] == [12, None]
    assert answer["expected"] is None
    known = assay("plan", "--suite", write(tmp_path), "--json")
    assert last(known)["expected"] == 4 + 2 * 3


def test_no_terminal_gets_control_codes_also_where_the_file_has_some(tmp_path: Path) -> None:
    done = assay("plan", "--suite", write(tmp_path, ("description", "a\x1b[31mb")), "--json")
    assert "\x1b" not in done.stdout + done.stderr
    assert "\\x1b[31mb" in done.stdout


HEAVY = (
    "docker",
    "httpx",
    "huggingface_hub",
    "numpy",
    "scipy",
    "starlette",
    "tenacity",
    "uvicorn",
)


@pytest.mark.parametrize(
    "words", ["validate --suite mock --check-runtime", "plan --suite mock", "plan quick"]
)
def test_nothing_heavy_is_loaded_to_look_at_a_suite(words: str) -> None:
    source = (
        "import sys; from assay.cli import main; code = main(sys.argv[1:]);"
        f"print(code, sorted(set({HEAVY}) & set(sys.modules)))"
    )
    command = [sys.executable, "-c", source, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_what_was_not_named_is_asked_for_with_all_that_could_be(tmp_path: Path) -> None:
    for words in ((), ("demo", "--suite", "mock")):
        done = assay("plan", *words)
        assert done.returncode == 2
        assert "suites:" in done.stderr
        assert "mock" in done.stderr
        assert "demo" in done.stderr
    named = assay("plan", "mock")
    assert named.returncode == 2
    assert '"mock" is a suite, and no profile' in named.stderr
    assert "next: --suite mock" in named.stderr


def test_a_file_that_cannot_be_used_is_exit_2_as_json_too(tmp_path: Path) -> None:
    done = assay("validate", "--suite", write(tmp_path, ("job.0.limit", "4")), "--json")
    assert done.returncode == 2
    answer = last(done)
    assert answer["exit_code"] == 2
    assert "job.first.limit: Input should be a valid integer" in answer["error"]["why"]


def test_what_a_backend_refuses_is_told_for_every_job(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ("job.0.backend_args", {"itms": 3}),
        ("job.1.backend", "mokc"),
        ("job.1.target", "local"),
    )
    done = assay("validate", "--suite", path)
    assert done.returncode == 2
    assert 'job second: there is no backend "mokc"' in done.stderr
    assert 'did you mean "mock"?' in done.stderr
    assert 'backend_args.itms: unknown key; did you mean "items"?' in done.stderr
    assert done.stderr.count("assay: error:") == 2


@pytest.mark.parametrize("value", ["3", True, 3.0, [3]])
def test_the_arguments_of_a_backend_are_as_strict_as_the_suite(tmp_path: Path, value: object) -> None:
    suite = read_suite(str(write(tmp_path, ("job.0.backend_args.items", value))), {}).suite
    with pytest.raises(ConfigurationError, match=r"backend_args\.items: Input should be a valid integer"):
        check_suite(suite)


def test_a_key_that_is_not_there_is_exit_2_and_one_that_is_stays_unseen(tmp_path: Path) -> None:
    path = write(tmp_path)
    missing = assay("validate", "--suite", path, "--check-runtime")
    assert missing.returncode == 2
    assert "the variable MODEL_API_KEY is not set" in missing.stderr
    assert assay("validate", "--suite", path).returncode == 0
    there = assay("validate", "--suite", path, "--check-runtime", "--json", "--verbose", MODEL_API_KEY=KEY)
    assert there.returncode == 0, there.stderr
    assert "valid, and all that it needs is here" in there.stdout
    assert KEY not in there.stdout + there.stderr


@pytest.mark.parametrize("value", ["two words", "line\nend", "gr\xfcn", "x" * 4097, "\x1b"])
def test_a_variable_that_holds_no_key_is_refused_and_not_shown(tmp_path: Path, value: str) -> None:
    target = read_suite(str(write(tmp_path)), {}).suite.targets[0]
    with pytest.raises(ConfigurationError, match="cannot be used") as caught:
        target_key(target, {"MODEL_API_KEY": value})
    assert value not in str(caught.value)


def test_a_targets_key_is_its_variables_or_its_private_files(tmp_path: Path) -> None:
    target = read_suite(str(write(tmp_path)), {}).suite.targets[0]
    found = target_key(target, {"MODEL_API_KEY": KEY})
    assert found is not None
    assert found.reveal() == KEY
    file = tmp_path / "key"
    file.write_text(KEY)
    private = target.model_copy(update={"api_key_env": None, "key_file": file})
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="its mode is 0644"):
        target_key(private, {})
    file.chmod(0o600)
    found = target_key(private, {})
    assert found is not None
    assert found.reveal() == KEY
    assert target_key(target.model_copy(update={"api_key_env": None}), {}) is None


class Watched(Mock):
    """A mock whose requirements are what the test says."""

    def __init__(self, *errors: AssayError) -> None:
        self.asked: list[str] = []
        self.errors = list(errors)

    def require(self, job: Any, target: Any, environ: Mapping[str, str]) -> None:
        self.asked.append(f"{job.id} of {target.name}")
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_each_jobs_requirements_are_looked_for_and_the_gravest_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    errors = (PrerequisiteError("no environment", "", "set it up"), ConfigurationError("no variable"))
    backend = Watched(*errors[:count])
    monkeypatch.setattr(registry, "find", lambda name: backend)
    suite = read_suite(str(write(tmp_path, ("target.local.api_key_env", "HOME_KEY"))), {}).suite
    environ = {"HOME_KEY": KEY}
    if count == 0:
        check_runtime(suite, environ)
    else:
        with pytest.raises(type(errors[count - 1]), match=errors[count - 1].what):
            check_runtime(suite, environ)
    assert backend.asked == ["first of local", "second of nobody"]
    assert capsys.readouterr().err.count("no environment") == (count == 2)


def test_a_served_model_that_was_not_fetched_is_missing_with_the_command_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, ("target.local", {"serve": "smollm2-135m", "max_concurrency": 2}))
    monkeypatch.setattr(sys.modules["assay.models.pins"], "MODELS", tmp_path / "models")
    with pytest.raises(PrerequisiteError, match="model smollm2-135m is not here") as caught:
        check_runtime(read_suite(str(path), {}).suite, {})
    assert caught.value.next == "assay model fetch smollm2-135m"


WARNED = [
    ("job.0.max_concurrency", 9, "it may hold 9 slots, and the target has 3"),
    ("job.0.limit", 2, "the first 2 only: no score of the benchmark"),
    ("target.local.base_url", "http://10.0.0.1/v1", "the key goes to 10.0.0.1 in clear (http)"),
]


@pytest.mark.parametrize(("place", "value", "said"), WARNED)
def test_what_a_reader_should_know_is_a_warning_of_the_plan(
    tmp_path: Path, place: str, value: object, said: str
) -> None:
    first = plan_suite(read_suite(str(write(tmp_path, (place, value))), {}).suite)[0]
    assert said in first.expected.warnings
    assert first.slots == 3
    plain = plan_suite(read_suite(str(write(tmp_path)), {}).suite)[0]
    assert said not in plain.expected.warnings


def test_one_endpoint_of_two_targets_is_told_with_what_it_may_get(tmp_path: Path) -> None:
    other = {"base_url": "http://127.0.0.1:18080/v1/", "model": "m", "max_concurrency": 5}
    path = write(tmp_path, ("target.other", other), ("job.1.target", "other"))
    first, second = plan_suite(read_suite(str(path), {}).suite)
    said = "its endpoint is also that of {}: it may get 8 requests at once"
    assert said.format("other") in first.expected.warnings
    assert said.format("local") in second.expected.warnings


def test_what_a_target_needs_is_among_the_requirements(tmp_path: Path) -> None:
    first, second = plan_suite(read_suite(str(write(tmp_path)), {}).suite)
    assert "the key of local: the variable MODEL_API_KEY" in first.expected.requirements
    assert second.expected.requirements == ()
    served = plan_suite(read_suite("embedded", {}).suite)
    needed = "the model that own serves: assay model fetch smollm2-135m"
    assert all(needed in item.expected.requirements for item in served)


def test_greedy_repeats_are_told_and_sampled_ones_are_not(tmp_path: Path) -> None:
    for temperature, count in ((0.0, 1), (0.6, 0)):
        path = write(tmp_path, ("defaults.generation.temperature", temperature))
        warnings = plan_suite(read_suite(str(path), {}).suite)[1].expected.warnings
        assert sum("greedy repeats" in warning for warning in warnings) == count


@pytest.mark.parametrize("name", load_profiles())
def test_each_profile_is_valid_and_expects_what_its_facts_promise(name: str) -> None:
    suite = read_suite(name, {}).suite
    check_suite(suite)
    facts = {entry.name: entry.tasks * entry.rollouts for entry in load_profiles()[name].entry}
    planned = plan_suite(suite)
    assert {item.job.id: item.expected.total for item in planned} == facts
    assert {item.slots for item in planned} <= {1, 4}
    assert total(planned) == sum(facts.values())


def test_an_entry_of_a_profile_is_planned_by_itself() -> None:
    done = assay("plan", "quick", "aime25", "--json")
    assert done.returncode == 0, done.stderr
    assert ["aime25", "verifiers", "quick/aime25", "server", "1", "10", "samples"] in [
        line.split() for line in done.stdout.splitlines()
    ]
    assert last(done)["suite"] == "quick.aime25"
