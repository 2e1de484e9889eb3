"""The audit of what the upstream profiles pin: sources, task data, routes, a seed a rollout, the pin set.

A liar makes the manifest again, so that only what can be computed or compared is left to find the change.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from altered import Altered
from routed_toy import FILES, REVISION, SEEDS, SNAPSHOT, extend, git, sha256
from test_audit_files import audited, evidence

import toy_checkout
from toy_checkout import Toy

pytestmark = pytest.mark.slow

Change = Callable[[Altered], object]
FIRST = f"provenance/launch/count/seed-{SEEDS[0]}"
TABLE = "data/part.parquet"


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    """A toy checkout with sources, data, routes and seeds."""
    made = toy_checkout.make(tmp_path_factory.mktemp("routed"))
    extend(made)
    yield made
    if made.warm is not None:
        made.warm.close()


@pytest.fixture(scope="module")
def pinned(routed: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run of it."""
    done = routed.run("run", "sampled", "--runs", tmp_path_factory.mktemp("pinned"), "--json")
    assert done.code == 0, done.err
    return Path(done.json["run_dir"])


@pytest.fixture
def copy(pinned: Path, tmp_path: Path) -> Altered:
    """A copy of the run, for one test to change."""
    run = tmp_path / pinned.name
    shutil.copytree(pinned, run, symlinks=True)
    return Altered(run)


def verdicts(answer: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in answer["checks"]}


def test_an_honest_run_with_everything_pinned_verifies(routed: Toy, pinned: Path) -> None:
    code, answer = audited(routed, pinned)
    assert (code, answer["failed"]) == (0, [])
    found = verdicts(answer)
    assert [found[name] for name in ("pins", "sources", "data", "routes", "checkout")] == ["PASS"] * 5
    assert sorted(path.name for path in (pinned / "count").iterdir()) == [f"seed-{seed}" for seed in SEEDS]


def inputs(change: Callable[[dict[str, Any]], object]) -> Change:
    def both(run: Altered) -> None:
        for when in ("before", "after-count"):
            run.json(f"provenance/inputs.{when}.json", lambda value: change(value["inputs"]))

    return both


def launch(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda run: run.json(f"{FIRST}/{name}", change)


def both_digests(run: Altered) -> None:
    """The frozen tree of the source and its record changed together, so that the two agree."""
    inputs(lambda found: found.update({"source:envs": "0" * 64}))(run)
    run.json("provenance/sources.json", lambda value: value["envs"].update(digest="0" * 64))


def other_lock(run: Altered) -> None:
    """The lock's copy and its frozen digest changed together, with the table's new digest frozen too."""
    path = run.run / "provenance/pins/datasets.lock"
    path.write_text(path.read_text().replace(sha256(FILES[TABLE]), "0" * 64))
    changed = {f"data:tiny/{TABLE}": "0" * 64, "file:datasets.lock": sha256(path.read_bytes())}
    inputs(lambda found: found.update(changed))(run)


def dropped_seed(run: Altered) -> None:
    shutil.rmtree(run.run / f"count/seed-{SEEDS[1]}")


def reseeded(run: Altered) -> None:
    """Another seed in everything that the evaluator was given and wrote but for its calls."""
    run.json(f"{FIRST}/overrides.json", lambda value: value["sampling"].update(seed=1))
    run.json(
        f"count/seed-{SEEDS[0]}/configs/resolved/eval.json", lambda value: value["sampling"].update(seed=1)
    )


def calls(change: Callable[[dict[str, Any]], object]) -> Change:
    def first(episodes: list[Any]) -> None:
        change(episodes[0]["traces"][0]["calls"][0]["sampling"])

    return lambda run: run.lines(f"count/seed-{SEEDS[0]}/traces.jsonl", first)


def swapped_parts(run: Altered) -> None:
    one, other = (run.run / f"count/seed-{seed}/traces.jsonl" for seed in SEEDS[:2])
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


CHANGES: dict[str, tuple[Change, str, str]] = {
    "the pin set": (
        lambda run: run.json("resolved.json", lambda value: value.update(pins="test")),
        "pins",
        'the pin set is "test": only production',
    ),
    "the pin set in the summary": (
        lambda run: run.json("summary.json", lambda value: value.update(pins="test")),
        "summary",
        "summary.json.pins: recorded 'test', computed 'production'",
    ),
    "a pin set among the inputs": (
        inputs(lambda found: found.update({"file:tests/pins/pins.toml": "0" * 64})),
        "pins",
        "file:tests/pins/pins.toml was frozen, so another pin set was in force",
    ),
    "a table's digest": (
        inputs(lambda found: found.update({f"data:tiny/{TABLE}": "0" * 64})),
        "data",
        f"data:tiny/{TABLE} was 000000",
    ),
    "a digest that only the file can tell": (
        inputs(lambda found: found.update({"data:tiny/README.md": "0" * 64})),
        "data",
        "data:tiny/README.md was 000000",
    ),
    "a data file left out": (
        inputs(lambda found: found.pop(f"data:tiny/{TABLE}")),
        "data",
        f"data:tiny/{TABLE} was not frozen",
    ),
    "a data file made up": (
        inputs(lambda found: found.update({"data:tiny/more.parquet": "0" * 64})),
        "data",
        "data:tiny/more.parquet is not pinned",
    ),
    "the datasets' lock with its data": (
        other_lock,
        "checkout",
        "datasets.lock of this checkout is not the one the run froze",
    ),
    "a source's tree": (
        inputs(lambda found: found.update({"source:envs": "0" * 64})),
        "sources",
        "envs: sources.json says digest",
    ),
    "a source's tree and its record": (both_digests, "sources", "envs: frozen was 000000"),
    "a source's revision": (
        lambda run: run.json(
            "provenance/sources.json", lambda value: value["envs"].update(revision="a" * 40)
        ),
        "sources",
        "envs: sources.json says revision aaaaaa",
    ),
    "a source's repository": (
        lambda run: run.json(
            "provenance/sources.json", lambda value: value["envs"].update(repository="https://elsewhere")
        ),
        "sources",
        "envs: sources.json says repository https://elsewhere",
    ),
    "the record of sources": (
        lambda run: (run.run / "provenance/sources.json").unlink(),
        "sources",
        "provenance/sources.json is missing",
    ),
    "a source in the lock's copy": (
        lambda run: run.text("provenance/pins/prime-envs.lock", "[[source]]", "[[program]]"),
        "sources",
        "prime-envs.lock cannot be used",
    ),
    "the data's revision": (
        launch("route.json", lambda value: value.update(revision="a" * 40)),
        "routes",
        "which is not what is routed there",
    ),
    "the data's name": (
        launch("route.json", lambda value: value.update(data="other")),
        "routes",
        "which is not what is routed there",
    ),
    "the link's name": (
        launch("route.json", lambda value: value["link"].update(name="org/other")),
        "routes",
        "link org/other is not declared",
    ),
    "the link's target": (
        launch("route.json", lambda value: value["link"].update(target="/somewhere/else")),
        "routes",
        "link org/tiny is '/somewhere/else', declared {snapshot}",
    ),
    "no link": (
        launch("route.json", lambda value: value.update(link=None)),
        "routes",
        "link org/tiny is None, declared {snapshot}",
    ),
    "the option that leads to the data": (
        launch("route.json", lambda value: value["overrides"]["env"]["taskset"].update(dataset="/x")),
        "routes",
        "option env.taskset.dataset is '/x', declared {snapshot}/data",
    ),
    "an option of nobody's": (
        launch("route.json", lambda value: value["overrides"].update(num_tasks=1)),
        "routes",
        "option num_tasks is not declared",
    ),
    "the variable that leads to the data": (
        launch("command.json", lambda value: value["environment"].update(TINY_DIR="/x")),
        "routes",
        "TINY_DIR was '/x', routed",
    ),
    "a variable of nobody's": (
        launch("route.json", lambda value: value["environment"].update(LD_PRELOAD="/x")),
        "routes",
        "variable LD_PRELOAD is not declared",
    ),
    "the hub's cache": (
        launch("route.json", lambda value: value["environment"].update(HF_HUB_CACHE="/home/me/.cache")),
        "routes",
        "HF_HUB_CACHE is '/home/me/.cache'",
    ),
    "the network to the hub": (
        launch("command.json", lambda value: value["environment"].pop("HF_HUB_OFFLINE")),
        "routes",
        "HF_HUB_OFFLINE is None, so it was not offline",
    ),
    "the working directory": (
        launch("command.json", lambda value: value.pop("working_directory")),
        "routes",
        "the working directory is None",
    ),
    "an invocation's route": (
        lambda run: (run.run / FIRST / "route.json").unlink(),
        "routes",
        f"{FIRST}/route.json is missing",
    ),
    "a seed's record dropped": (dropped_seed, "rows", "rows are missing though the run says done"),
    "a seed's record dropped, and the count": (dropped_seed, "state", "('count', 18, 12)"),
    "a seed in the overrides": (
        launch("overrides.json", lambda value: value["sampling"].update(seed=1)),
        "configuration",
        f"{FIRST}/overrides.json overrides more than is declared",
    ),
    "a seed in all but the calls": (
        reseeded,
        "configuration",
        f"{FIRST}/overrides.json overrides more than is declared",
    ),
    "a seed in the calls": (
        calls(lambda sampling: sampling.update(seed=1)),
        "requests",
        f"count/seed-7/traces.jsonl line 1: seed was 1, planned {SEEDS[0]}",
    ),
    "no seed in the calls": (
        calls(lambda sampling: sampling.pop("seed")),
        "requests",
        f"count/seed-7/traces.jsonl line 1: seed was None, planned {SEEDS[0]}",
    ),
    "two seeds' records swapped": (
        swapped_parts,
        "requests",
        f"count/seed-7/traces.jsonl line 1: seed was {SEEDS[1]}, planned {SEEDS[0]}",
    ),
    "the seeds of the plan": (
        lambda run: run.json("resolved.json", lambda value: value["entries"][0].update(seeds=[7, 8, 1])),
        "plan",
        "the directory's name",
    ),
    "the tasks found": (
        lambda run: run.json("summary.json", lambda value: value["entries"][0].update(tasks_found=5)),
        "summary",
        "summary.json.entries[0].tasks_found: recorded 5, computed 6",
    ),
    "the sampling in the summary": (
        lambda run: run.json(
            "summary.json", lambda value: value["entries"][0]["sampling"].update(temperature=0.0)
        ),
        "summary",
        "summary.json.entries[0].sampling.temperature: recorded 0.0, computed 0.6",
    ),
    "the truncation rate": (
        lambda run: run.json("summary.json", lambda value: value["entries"][0].update(truncated_rate=0.5)),
        "summary",
        "summary.json.entries[0].truncated_rate",
    ),
    "repeats that are one answer": (
        lambda run: run.json(
            "summary.json", lambda value: value["families"][0]["repeats"].update(one_answer=False)
        ),
        "summary",
        "summary.json.families[0].repeats.one_answer: recorded False, computed True",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_to_what_is_pinned_is_found(routed: Toy, copy: Altered, name: str) -> None:
    change, check, said = CHANGES[name]
    change(copy)
    copy.reseal()
    code, answer = audited(routed, copy.run)
    assert code == 5
    assert "files" not in answer["failed"], "the manifest was made again"
    assert said in evidence(answer, check)


def test_a_run_under_other_pins_renamed_to_fit_is_still_not_accepted(routed: Toy, tmp_path: Path) -> None:
    """The pins edited to production's after a run under another set: its inputs name the set's files."""
    pins = routed.root / "tests/pins"
    pins.mkdir(parents=True)
    (pins / "pins.toml").write_text('name = "test"\n')
    (pins / "models.lock").write_bytes((routed.root / "models.lock").read_bytes() + b"# another\n")
    runs = tmp_path / "runs"
    runs.mkdir()
    try:
        done = routed.run("run", "toy", "--pins", pins, "--runs", runs, "--json")
        assert done.code == 0, done.err
        assert "PINS: test" in done.err
        run = Altered(Path(done.json["run_dir"]))
        assert "PINS: test" in (run.run / "summary.md").read_text()
        code, answer = audited(routed, run.run, "--pins", str(pins))
        assert (code, answer["failed"]) == (5, ["pins"])
        assert 'the pin set is "test"' in evidence(answer, "pins")
        run.json("resolved.json", lambda value: value.update(pins="production"))
        run.json("summary.json", lambda value: value.update(pins="production"))
        run.reseal()
        digest = evidence(audited(routed, run.run)[1], "plan").split("digest ")[1][:8]
        renamed = run.run.with_name(run.run.name[:-8] + digest)
        run.run.rename(renamed)
        code, answer = audited(routed, renamed)
    finally:
        shutil.rmtree(pins.parent)
    assert code == 5
    assert {"pins", "checkout"} <= set(answer["failed"])
    assert "file:tests/pins/pins.toml was frozen" in evidence(answer, "pins")


def without(routed: Toy, place: str, tmp_path: Path) -> Callable[[], object]:
    """Take something away from the checkout; the returned function brings it back."""
    path = routed.root / place
    path.rename(tmp_path / "away")
    return lambda: (tmp_path / "away").rename(path)


@pytest.mark.parametrize(
    ("place", "check", "said"),
    [
        ("eval/.sources/envs", "sources", "the source envs is not here"),
        ("eval/.data", "data", "1 file(s) of tiny are pinned by Git's hash"),
    ],
)
def test_what_this_checkout_does_not_have_is_unknown_and_not_passed(
    routed: Toy, pinned: Path, tmp_path: Path, place: str, check: str, said: str
) -> None:
    restore = without(routed, place, tmp_path)
    try:
        code, answer = audited(routed, pinned)
    finally:
        restore()
    found = next(item for item in answer["checks"] if item["name"] == check)
    assert found["verdict"] == "UNKNOWN", found
    assert said in "\n".join(found["evidence"])
    assert (code, answer["failed"]) == (0, [])


def test_an_edited_source_of_this_checkout_vouches_for_nothing(routed: Toy, pinned: Path) -> None:
    path = routed.root / "eval/.sources/envs/env.py"
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"# edited\n")
        _, answer = audited(routed, pinned)
    finally:
        path.write_bytes(before)
    assert verdicts(answer)["sources"] == "UNKNOWN"
    assert git(path.parent, "status", "--porcelain") == ""


def test_an_edited_snapshot_of_this_checkout_vouches_for_nothing(routed: Toy, pinned: Path) -> None:
    path = routed.root / "eval/.data" / SNAPSHOT / "README.md"
    before = path.read_bytes()
    try:
        path.write_bytes(before.replace(b"T", b"X"))
        _, answer = audited(routed, pinned)
    finally:
        path.write_bytes(before)
    assert verdicts(answer)["data"] == "UNKNOWN"


def test_the_recipe_leads_to_the_data_as_the_run_was_led(routed: Toy, pinned: Path) -> None:
    status = routed.run("status", pinned, "--json")
    (recipe,) = status.json["resume"]["count"]
    assert (recipe["folder"], recipe["owed"]) == (f"count/seed-{SEEDS[0]}", 0)
    script = "\n".join(recipe["lines"])
    snapshot = routed.root / "eval/.data" / SNAPSHOT
    assert REVISION in str(snapshot)
    for said in (
        f"ln -sfn {snapshot} org/tiny",
        f"export TINY_DIR={snapshot}",
        f"export HF_HUB_CACHE={routed.root}/eval/.data/hub",
        "export HF_HUB_OFFLINE=1",
        'export ASSAY_API_KEY="${ASSAY_API_KEY:-none}"',
        f"{pinned}/count/seed-{SEEDS[0]}/configs/resolved/eval.json --resume --no-rich --no-push",
    ):
        assert said in script
