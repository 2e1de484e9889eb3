"""A profile's run as an operator would falsify it, who holds the key: each change is found, and named.

Every case changes one thing, makes the manifest again over what stands there now, and signs the statement
of that with the run's own key. So neither a digest nor a signature can find it: what is left is what the
run's parts say of each other, what this checkout pins, and what can be computed again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import profile_changes as by
import pytest
from altered import Altered
from test_audit_files import audited, evidence

from assay.signing.key import load_signing_key, make_key
from assay.signing.sign import sign_run
from toy_checkout import Toy

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Operator:
    """Who holds the key of the runs: its two files."""

    private: Path
    public: Path

    def seal(self, run: Altered) -> None:
        """Make manifest and statement again, as the run's own end does."""
        run.reseal()
        sign_run(run.run, load_signing_key(self.private))


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """The key that the operator signs his runs with, and that the auditor was given."""
    private, public, _ = make_key(tmp_path_factory.mktemp("operator"), "operator", None)
    return Operator(private, public)


CASES: dict[Callable[[Altered], Altered | None], tuple[str, str]] = {
    by.a_launch_file_edited_after_the_run: (
        "profile",
        "launch/count/local.toml is not eval/configs/local.toml",
    ),
    by.a_description_that_promises_more: ("profile", "the description is 'a measure of intelligence'"),
    by.a_smaller_plan_without_the_failed_task: (
        "profile",
        "count is 5 tasks x 1 rollouts, the profile has 6",
    ),
    by.fewer_tasks_that_nobody_is_told_of: (
        "notes",
        "summary.json does not note: count: asked otherwise",
    ),
    by.an_option_that_no_command_lays_over: (
        "profile",
        "env.taskset.hints = True was laid over its files",
    ),
    by.another_models_name: ("pins", "model:larger-model was None"),
    by.another_models_identity: ("server", f"the server claims the model {'1' * 64}"),
    by.another_models_identity_with_its_lock: ("checkout", "models.lock of this checkout is not the one"),
    by.containers_that_were_none: (
        "isolation",
        "count/traces.jsonl line 1: ran on subprocess, planned docker",
    ),
    by.one_byte_of_an_answer: ("samples", "samples.jsonl line 6: not what the native record gives"),
    by.a_failed_row_removed: ("rows", "the evaluator ended well, but its records lack 1 of 6 rows"),
    by.a_failed_row_replaced_by_a_good_one_again: ("rows", "has 2 rows, planned 1"),
    by.a_good_row_under_the_key_of_the_failed_one: ("rows", "was asked with another prompt"),
    by.a_row_doubled: ("rows", "task letter/0 has 2 rows, planned 1"),
    by.a_task_key_that_looks_alike: ("rows", "was not planned"),
    by.a_reward_that_is_no_number: ("samples", by.TRACES),
    by.a_reward_that_stands_twice: ("form", 'line 2: the key "score" stands twice in one object'),
    by.a_reward_of_samples_and_summary_alone: (
        "samples",
        "samples.jsonl line 2: not what the native record",
    ),
    by.a_family_that_looks_alike: ("samples", "samples.jsonl line 1"),
    by.the_seconds_of_the_samples: ("samples", "samples.jsonl line 1"),
    by.a_baseline_in_plan_and_summary: (
        "tasks",
        "provenance/tasks/count.json is not what the taskset describes",
    ),
    by.a_score: ("summary", "summary.json.families[0].score: recorded 1.0"),
    by.an_interval_made_narrow: ("summary", "summary.json.families[0].low: recorded 0.66"),
    by.a_count_of_errors: ("summary", "summary.json.counts.errored: recorded 1, computed 0"),
    by.a_family_made_up: ("summary", "summary.json.families"),
    by.a_note_of_approval: ("notes", "summary.json notes what no run notes: verified by an independent"),
    by.a_confidence: ("summary", "summary.json.confidence: recorded 0.99"),
    by.the_dates_of_the_state: ("times", "events.jsonl run-started is"),
    by.every_date_but_the_rollouts_own: ("times", "count/traces.jsonl line 1 is dated"),
    by.the_date_in_the_directorys_name: ("times", "the directory's name says 20200101"),
    by.the_order_of_start_and_end: ("times", "state.json count ended_at is"),
    by.the_seconds_that_were_counted: ("times", "provenance/seconds.json counts 7200.0 s"),
    by.an_event_removed: ("events", "'kind': 'entry-ended'"),
    by.an_event_removed_and_its_number_missed: ("events", "event 3 stands where event 2 belongs"),
    by.an_event_that_tells_of_more_rows: ("events", "'finished': 60"),
    by.a_summary_in_another_order: ("summary", "summary.json is not in the form it is written in"),
    by.a_plan_in_another_order: ("form", "resolved.json is not in the form and order"),
    by.a_state_on_one_line: ("form", "state.json is not in the form and order"),
    by.a_score_that_stands_twice: ("form", 'summary.json the key "score" stands twice in one object'),
    by.a_commit_that_stands_twice: ("form", 'provenance/worktree.json the key "commit" stands twice'),
    by.a_file_added_at_the_top: ("form", "results.html is nothing that a run writes"),
    by.a_file_added_to_the_provenance: ("form", "provenance/approved.json is nothing that a run writes"),
    by.a_link_beside_the_summary: ("form", "best.json is nothing that a run writes"),
    by.a_link_in_the_place_of_the_samples: ("form", "samples.jsonl is nothing that a run writes"),
    by.a_name_that_looks_alike: ("form", "'summ\\u0430ry.json' is not a plain name"),
    by.a_name_with_what_nobody_sees: ("form", "'count/traces\\u200b.jsonl' is not a plain name"),
}


def test_a_run_that_was_only_signed_again_verifies(toy: Toy, altered: Altered, operator: Operator) -> None:
    by.derived_again(altered)
    operator.seal(altered)
    code, answer = audited(toy, altered.run, "--key", str(operator.public))
    assert (code, answer["failed"]) == (0, [])


@pytest.mark.parametrize("falsify", CASES, ids=lambda falsify: falsify.__name__)
def test_it_is_found_and_named(
    toy: Toy, altered: Altered, operator: Operator, falsify: Callable[[Altered], Altered | None]
) -> None:
    check, said = CASES[falsify]
    run = falsify(altered) or altered
    operator.seal(run)
    code, answer = audited(toy, run.run, "--key", str(operator.public))
    assert code == 5
    assert not {"files", "signature"} & set(answer["failed"]), "the operator made both again"
    assert said in evidence(answer, check)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_out_of_the_directory_is_named_and_nothing_else_is_read(
    toy: Toy, altered: Altered, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    if kind == "file":
        (altered.run / by.SUMMARY).rename(outside)
        (altered.run / by.SUMMARY).symlink_to(outside)
    else:
        shutil.move(altered.run / "provenance", outside)
        (altered.run / "provenance").symlink_to(outside)
    altered.reseal()
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert f"is a link to {outside}" in evidence(answer, "files")
    assert [check["name"] for check in answer["checks"]] == ["files"]


def test_a_manifest_in_another_order_is_found(toy: Toy, altered: Altered, operator: Operator) -> None:
    path = altered.run / "manifest.json"
    value = json.loads(path.read_text("utf-8"))
    value["files"] = dict(reversed(value["files"].items()))
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
    sign_run(altered.run, load_signing_key(operator.private))
    code, answer = audited(toy, altered.run, "--key", str(operator.public))
    assert (code, answer["failed"]) == (5, ["form"])
    assert "manifest.json is not in the form and order" in evidence(answer, "form")
