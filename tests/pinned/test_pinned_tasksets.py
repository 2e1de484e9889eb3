"""The stand-in tasksets under the pinned Verifiers: rows found through the routes and in no other way."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinned.native import Native

SIDE = Path(__file__).parent
# Tasks after each taskset's own filters; of i3-logic a quarter is filtered out, of livecodebench half.
TASKS = {
    "aime24": 30,
    "aime25": 30,
    "aime26": 30,
    "i3-logic": 30,
    "livecodebench": 18,
    "mmlu-pro": 20,
    "mrcr-v2": 12,
    "graphwalks": 24,
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(pinned, tmp_path_factory):
    native = Native("prime-envs", tmp_path_factory.mktemp("tasksets"))
    tables = [native.taskset(name) for name in TASKS]
    return dict(zip(TASKS, native.side(SIDE / "taskset_side.py", tables), strict=True))


def test_every_taskset_loads_its_routed_rows_offline(found):
    assert {name: item.get("tasks", item) for name, item in found.items()} == TASKS


def test_task_keys_are_distinct_and_the_native_shuffle_moves_them(found):
    for item in found.values():
        assert item["distinct"] == item["tasks"]
        assert item["shuffled"] != item["first"]


def test_no_task_hands_its_answer_to_the_model(found):
    for name, item in found.items():
        data = item["data"]
        secret = data.get("cases") or data.get("transcript") or data.get("graph")
        assert secret is None or secret not in data["prompt"], name
    assert found["aime24"]["data"]["network_allow"] == []


def test_without_its_route_a_taskset_finds_nothing(pinned, tmp_path):
    native = Native("prime-envs", tmp_path)
    for link in native.work.glob("*/*"):
        link.unlink()
    away = {"HF_HUB_CACHE": str(tmp_path / "empty"), "MRCR_V2_CACHE_DIR": str(tmp_path / "empty")}
    tables = [{"id": name} for name in TASKS]
    found = native.side(SIDE / "taskset_side.py", tables, **away)
    assert [item.keys() for item in found] == [{"error"}] * len(TASKS), found


def test_both_environments_of_the_direct_lane_load_their_rows(pinned_direct, tmp_path):
    native = Native("direct", tmp_path)
    asked = [
        ["graphwalks", {"problem_type": "bfs", "prompt_chars_filter": "<=65536"}],
        ["graphwalks", {"problem_type": "parents", "prompt_chars_filter": "0-1000"}],
        ["mrcr-v2", {"needle_count": 8, "context_range": "128k-256k"}],
    ]
    walks, short, needles = native.side(SIDE / "environment_side.py", asked)
    assert walks["rows"] == 12
    assert 0 < short["rows"] < 12
    assert "Find the parents" in short["first"]["prompt"][0]["content"]
    assert needles["rows"] == 12
    assert needles["first"]["answer"][12:] in needles["first"]["prompt"][0]["content"]
