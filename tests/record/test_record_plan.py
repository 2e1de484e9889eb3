"""A plan is a value: what is read back is what was written, and its digest tells any change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.digest import value_digest
from assay.errors import ConfigurationError
from assay.files import write_json_atomic
from assay.plan import EGRESS, Plan, load_plan, overrides
from assay.planning import make_plan
from assay.profile import find_profile, load_profiles, merge

NAME = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,12}\Z")
LOCAL = 'push = false\n[sampling]\ntemperature = 0.0\n[env.taskset]\nid = "{}"\n'


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    runtime = draw(st.sampled_from(["docker", "subprocess"]))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    names = draw(st.lists(NAME, min_size=1, max_size=3, unique=True))
    own = {"kind": "own", "model": draw(text), "slots": draw(st.integers(1, 9))}
    other = {"kind": "other", "model": draw(text), "base_url": "http://127.0.0.1:1/v1"}
    comment = draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12))
    value: dict[str, Any] = {
        "profile": draw(NAME),
        "description": draw(text),
        "pins": draw(NAME),
        "evaluator": draw(NAME),
        "dialect": "eval",
        "key_variable": "QWEN_API_KEY",
        "runtime": runtime,
        "egress": EGRESS[runtime],
        "image": draw(text) if runtime == "docker" else None,
        "docker": {"workdir": draw(text), "cpu": draw(st.floats(0.1, 64)), "memory": 1},
        "server": draw(st.sampled_from([own, other])),
        "entries": [
            {
                "name": name,
                "tasks": draw(st.integers(1, 10**6)),
                "rollouts": draw(st.integers(1, 9)),
                "launch": {"local.toml": LOCAL.format(name), "entry.toml": f"# {comment}\n"},
                "max_concurrent": draw(st.integers(1, 99)),
            }
            for name in names
        ],
    }
    return Plan.model_validate(value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans())
def test_a_plan_read_back_is_the_plan_that_was_written(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "resolved.json"
    write_json_atomic(path, plan.model_dump(mode="json"))
    again = load_plan(path)
    assert again == plan
    assert again.digest == plan.digest == value_digest(json.loads(path.read_text("utf-8")))
    assert plan.planned == sum(entry.tasks * entry.rollouts for entry in plan.entries)


@settings(max_examples=40)
@given(plans(), st.data())
def test_any_other_value_in_a_plan_has_another_digest(plan: Plan, data: st.DataObject) -> None:
    value = plan.model_dump(mode="json")
    place = data.draw(st.sampled_from(["description", "tasks", "launch", "slots"]))
    if place == "description":
        value["description"] += "x"
    elif place == "tasks":
        value["entries"][0]["tasks"] += 1
    elif place == "launch":
        value["entries"][-1]["launch"]["entry.toml"] += " "
    else:
        value["server"]["model"] += "x"
    assert Plan.model_validate(value).digest != plan.digest


def test_the_profiles_of_this_checkout_can_be_planned() -> None:
    for profile in (found for found in load_profiles().values() if found.evaluator == "verifiers"):
        for runtime in profile.runtimes:
            plan = make_plan(profile, None, runtime, "image" if runtime == "docker" else None)
            assert plan.planned == sum(facts.tasks * facts.rollouts for facts in profile.entry)
            assert plan.egress == EGRESS[runtime]
            families = plan.native(plan.entries[0])["env"]["taskset"]["families"]
            assert sum(family["size"] for family in families) == plan.entries[0].tasks


def test_only_demo_may_run_on_the_host() -> None:
    for name, profile in load_profiles().items():
        assert ("subprocess" in profile.runtimes) == (name == "demo")
    with pytest.raises(ConfigurationError, match="does not run on the subprocess runtime"):
        make_plan(find_profile("demo-full"), None, "subprocess", None)


def test_containers_have_their_network_cut_and_the_host_takes_no_such_key() -> None:
    for runtime in ("docker", "subprocess"):
        image = "sha256:0" if runtime == "docker" else None
        plan = make_plan(find_profile("demo"), None, runtime, image)
        (entry,) = plan.entries
        over = overrides(plan, entry, entry.parts[0], "http://127.0.0.1:1/v1", "m", Path("/runs/r"), "r", {})
        assert over["push"] is False
        table = over["env"]["agent"]["runtime"]
        if runtime == "docker":
            assert (table["allow"], table["image"]) == ([], "sha256:0")
        else:
            assert table == {"type": "subprocess"}


TABLES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers(0, 3), max_size=3),
    max_leaves=8,
)


@given(TABLES, TABLES)
def test_a_layer_over_another_wins_where_it_speaks_and_nowhere_else(
    base: dict[str, Any], over: dict[str, Any]
) -> None:
    merged = merge(base, over)
    assert merge(merged, over) == merged
    assert merge(base, {}) == base
    assert merge({}, over) == over
    for key in base.keys() | over.keys():
        if key not in over:
            assert merged[key] == base[key]
        elif not (isinstance(base.get(key), dict) and isinstance(over[key], dict)):
            assert merged[key] == over[key]


def test_a_plan_of_another_form_is_named_with_how_to_read_it(tmp_path: Path) -> None:
    path = tmp_path / "resolved.json"
    for form in ("assay/resolved/v1", "assay/resolved/v9"):
        write_json_atomic(path, {"schema_version": form, "profile": "demo"})
        with pytest.raises(ConfigurationError) as caught:
            load_plan(path)
        assert f"is of the form {form}" in caught.value.what
        assert "reads assay/resolved/v2" in caught.value.why
        assert "worktree.json" in caught.value.next
    for value in ({"schema_version": "another/form/v1"}, {"schema_version": 1}, [], "assay/resolved/v1"):
        write_json_atomic(path, value)
        with pytest.raises(ConfigurationError, match="is not a resolved run"):
            load_plan(path)
