"""Fewer tasks and other sampling, laid over a profile's entry in the evaluator's own words."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import ConfigurationError
from assay.plan import EntryPlan, Plan, overrides
from assay.planning import make_plan
from assay.profile import find_profile
from assay.record.asked import sampling


def planned(profile: str, entry: str, **more: Any) -> Plan:
    """The plan of an entry, of a server that is there."""
    found = find_profile(profile)
    runtime = found.runtimes[-1]
    image = "image" if runtime == "docker" else None
    return make_plan(found, entry, runtime, image, "http://127.0.0.1:1/v1", "m", **more)


def launched(plan: Plan, entry: EntryPlan, tmp_path: Any) -> dict[str, Any]:
    """The last layer of the evaluator's configuration."""
    return overrides(plan, entry, entry.parts[0], "http://127.0.0.1:1/v1", "m", tmp_path, "run", {})


@pytest.mark.parametrize(
    ("profile", "entry", "count", "table"),
    [
        ("demo", "reasoning-gym", ("select", "limit"), "sampling"),
        ("quick", "i3-logic", ("num_tasks",), "sampling"),
        ("direct-full", "mrcr-64k", ("num_examples",), "sampling_args"),
    ],
)
def test_each_evaluator_is_asked_in_its_own_words(
    profile: str, entry: str, count: tuple[str, ...], table: str, tmp_path: Any
) -> None:
    options = {"temperature": 0.5, "max_tokens": 9, "top_k": 4, "extra_body": {"mark": 1}}
    plan = planned(profile, entry, limit=1, sampling=options)
    (asked,) = plan.entries
    over = launched(plan, asked, tmp_path)
    found: Any = over
    for key in count:
        found = found[key]
    assert (found, asked.tasks) == (1, 1)
    assert over[table] == {"temperature": 0.5, "max_tokens": 9, "extra_body": {"top_k": 4, "mark": 1}}
    told = sampling(plan.dialect, plan.native(asked))
    assert {name: told[name] for name in ("temperature", "max_tokens", "top_k", "mark")} == {
        "temperature": 0.5,
        "max_tokens": 9,
        "top_k": 4,
        "mark": 1,
    }


def test_an_entry_that_is_asked_as_it_stands_has_the_digest_it_always_had() -> None:
    plain, wide = planned("demo", "reasoning-gym"), planned("demo", "reasoning-gym", limit=80)
    assert "over" not in plain.entries[0].model_dump(mode="json")
    assert plain.digest == wide.digest
    cut = planned("demo", "reasoning-gym", limit=79)
    assert cut.digest != plain.digest
    assert Plan.model_validate(cut.model_dump(mode="json")) == cut


def test_a_seed_for_all_rollouts_is_refused_where_each_has_its_own() -> None:
    with pytest.raises(ConfigurationError, match="a seed for each rollout"):
        planned("full-sampled", "aime24", sampling={"seed": 1})
