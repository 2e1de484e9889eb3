"""Every profile is valid for the pinned evaluator itself, without a key, a server, an engine or data."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from short_pins import Cut, short

import profile_table
from assay import dialect, pinset
from assay.audit.input_checks import lacking
from assay.errors import ConfigurationError
from assay.evaluator import load_evaluator
from assay.plan import Plan, overrides
from assay.planning import make_plan
from assay.profile import find_profile, merge
from assay.run import native, route
from assay.run.tasks import list_tasks
from pinned.locks import PINS
from pinned.site import LIMIT_S, Site

pytestmark = pytest.mark.slow

SIDE = Path(__file__).with_name("dry_side.py")
UPSTREAM = [name for name, column in profile_table.TABLE.items() if column.evaluator == "prime-envs"]
NOTHING = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


@pytest.fixture
def test_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pinset.VARIABLE, str(PINS))


def planned(name: str) -> Plan:
    """The plan of a profile as its dry run makes it."""
    profile = find_profile(name)
    runtime = profile.runtimes[0]
    return make_plan(profile, None, runtime, "assay-sandbox" if runtime == "docker" else None)


@dataclass(frozen=True)
class Launch:
    """One part of an entry as the evaluator is given it.

    Attributes:
        name: Its profile, entry and part.
        words: The arguments of the evaluator's dry run.
        config: What is asked, the run's own values laid over it.
        resolved: Where the evaluator writes what it made of that.
    """

    name: str
    words: list[str]
    config: Mapping[str, Any]
    resolved: Path


def launches(plan: Plan, folder: Path, parts: int = 2) -> Iterator[Launch]:
    """What the evaluator is given for each entry of a plan, up to so many parts of it."""
    evaluator = load_evaluator(plan.evaluator)
    speech = dialect.of(plan.dialect)
    for entry in plan.entries:
        routed = route.to_nowhere(evaluator, plan.taskset(entry)).overrides
        for part in entry.parts[:parts]:
            output = folder / plan.profile
            over = overrides(plan, entry, part, "http://127.0.0.1:1/v1", "m", output, "run", routed)
            files = speech.write(folder / "launch" / plan.profile / part.folder, entry.launch, over)
            yield Launch(
                f"{plan.profile}/{part.folder}",
                speech.dry_run(evaluator, files)[1:],
                merge(plan.native(entry), over),
                output / part.folder / "configs/resolved/eval.json",
            )


def refusals(asked: Sequence[Launch], folder: Path) -> list[str | None]:
    """What the evaluator says of each launch, None where it takes it; it is imported once for all of them."""
    evaluator = load_evaluator("prime-envs")
    done = subprocess.run(
        [evaluator.binaries / "python", "-P", SIDE],
        input=json.dumps([launch.words for launch in asked]),
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **evaluator.environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == len(asked)
    return [None if said is None else str(said) for said in found]


def test_the_evaluator_takes_every_entry_of_every_profile_and_resolves_what_is_asked(
    pinned: Site, test_pins: None, tmp_path: Path
) -> None:
    asked = [launch for name in UPSTREAM for launch in launches(planned(name), tmp_path)]
    assert refusals(asked, tmp_path) == [None] * len(asked)
    for launch in asked:
        assert lacking(launch.config, json.loads(launch.resolved.read_text("utf-8")), launch.name) == []
    seeds = {path.parts[-4] for path in tmp_path.glob("full-sampled/aime24/*/configs/resolved/eval.json")}
    assert seeds == {"seed-0", "seed-1"}


def test_the_command_validates_an_entry_with_nothing_at_hand(pinned: Site) -> None:
    done = pinned.run("run", "smoke", "--dry-run", "--json", **NOTHING)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["status"], answer["planned"], answer["pins"]) == ("valid", 3, "test")
    assert "smoke/aime24: valid" in done.stderr


def test_the_direct_lane_is_validated_by_its_own_command_though_it_has_no_dry_run(
    pinned_direct: Site,
) -> None:
    done = pinned_direct.run("run", "direct-full", "--dry-run", "--json", **NOTHING)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(": valid;") == 4
    assert json.loads(done.stdout.splitlines()[-1])["planned"] == 680 + 1128 + 350 + 400


MISSPELT: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "an option of the command": ("smoke", "aime24", {"num_task": 3}, "num-task"),
    "an option of the taskset": (
        "agentic", "mrcr-v2-64k", {"env": {"taskset": {"needle_cout": 8}}}, "needle-cout",
    ),
    "a value of it": (
        "agentic", "mrcr-v2-64k", {"env": {"taskset": {"context_range": "1k-2k"}}}, "context-range",
    ),
    "an option of the harness": (
        "agentic", "graphwalks", {"env": {"agent": {"harness": {"serch": True}}}}, "serch",
    ),
}  # fmt: skip


def test_what_the_evaluator_does_not_know_is_refused_by_it(
    pinned: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    for number, (profile, entry, own, _) in enumerate(MISSPELT.values()):
        with short({profile: {entry: Cut(1, native=own)}}, {"sampling": {}}) as pins:
            monkeypatch.setenv(pinset.VARIABLE, str(pins))
            asked += launches(planned(profile), tmp_path / str(number))
    monkeypatch.setenv(pinset.VARIABLE, str(PINS))
    found = refusals(asked, tmp_path)
    for (what, case), told in zip(MISSPELT.items(), found, strict=True):
        assert told is not None, what
        assert case[-1] in told.replace("_", "-"), what


def test_the_command_tells_what_the_evaluator_refuses_in_its_own_words(pinned: Site) -> None:
    profile, entry, native, said = MISSPELT["an option of the command"]
    with short({profile: {entry: Cut(1, native=native)}}, {"sampling": {}}) as pins:
        done = pinned.run("run", profile, "--dry-run", "--json", "--pins", pins, **NOTHING)
        path = f"{pins.name}/configs/{profile}/{entry}.toml"
    assert done.returncode == 2, done.stderr
    assert f'the evaluator refuses entry "{entry}" of profile "{profile}"' in done.stderr
    assert said in done.stderr.replace("_", "-")
    assert path in done.stderr


@pytest.mark.parametrize(
    ("native", "said"),
    [
        ({"max_concurent": 1}, "max_concurent"),
        ({"env_args": {"needle_cout": 8}}, "load_environment has no argument needle_cout"),
    ],
)
def test_the_direct_lane_refuses_what_it_does_not_know(
    pinned_direct: Site, native: dict[str, Any], said: str
) -> None:
    with short({"direct-smoke": {"mrcr-64k": Cut(1, native=native)}}, {"sampling": {}}) as pins:
        done = pinned_direct.run("run", "direct-smoke", "--dry-run", "--json", "--pins", pins)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_without_data_everything_missing_is_named_at_once_and_nothing_is_begun(
    pinned: Site, tmp_path: Path
) -> None:
    cut = {"quick": {name: Cut(1) for name in ("aime24", "i3-logic", "livecodebench")}}
    with short(cut, {"sampling": {}}, name="elsewhere") as pins:
        runs = tmp_path / "runs"
        runs.mkdir()
        done = pinned.run("run", "quick", "--runs", runs, "--json", "--pins", pins)
        dry = pinned.run("run", "quick", "--dry-run", "--json", "--pins", pins)
    assert done.returncode == 3, done.stderr
    assert "pinned task data are missing: aime24, i3-logic, livecodebench" in done.stderr
    assert "aime24 i3-logic livecodebench" in done.stderr.partition("next:")[2]
    assert list(runs.iterdir()) == []
    assert dry.returncode == 3, dry.stderr
    assert f"eval/scripts/setup --pins .assay/tests/{pins.name} prime-envs" in dry.stderr


def test_a_taskset_that_yields_another_number_of_tasks_than_the_profile_promises_is_refused(
    pinned: Site, test_pins: None, tmp_path: Path
) -> None:
    """`full` promises the real taskset's 454 after its filters; the stand-in's rows leave 18."""
    plan = planned("full")
    entry = next(entry for entry in plan.entries if entry.name == "livecodebench")
    scratch = native.Scratch(tmp_path)
    routed = route.to_data(load_evaluator("prime-envs"), "livecodebench")
    files = native.write_launch(plan, entry, tmp_path / "launch", routed.overrides)
    env = native.environment(plan, scratch, None, "test", routed)
    cwd = routed.directory(tmp_path / "work")
    with pytest.raises(ConfigurationError, match="yields 18 tasks, expected 454"):
        list_tasks(plan, entry, files, env, cwd)
