"""The nineteen mistakes seen in other coordinators, and the tests that hold this one to be immune to each."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# What went wrong, and `file: test` of each test that fails when it goes wrong here.
MISTAKES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "a job's id wrote outside the run directory",
        (
            "coordinator/test_coordinator_state.py: test_no_name_of_a_job_leads_out_of_the_run",
            "suite/test_suite_read.py: test_an_id_that_leads_elsewhere_or_looks_like_another_is_refused",
        ),
    ),
    2: (
        "secrets in addresses, headers and free text were saved",
        (
            "suite/test_suite_secrets.py: test_the_value_of_any_header_is_refused",
            "suite/test_suite_secrets.py: test_an_address_with_a_key_in_it_is_refused_and_not_repeated",
            "suite/test_suite_secrets.py: test_what_looks_like_a_key_is_refused_wherever_free_text_may_stand",
            "coordinator/test_suite_run.py: test_a_key_is_in_no_file_of_a_run_whatever_the_target_says",
        ),
    ),
    3: (
        "status of a missing run crashed",
        ("coordinator/test_suite_run.py: test_status_tells_a_live_run_from_a_dead_one_and_from_none",),
    ),
    4: (
        "queued jobs started after Ctrl-C, SIGTERM was not handled, a second Ctrl-C broke the tear-down",
        (
            "coordinator/test_coordinator_scheduler.py: "
            "test_queued_jobs_do_not_begin_after_a_stop_and_running_ones_are_waited_for",
            "coordinator/test_suite_run.py: "
            "test_a_signal_ends_everything_keeps_what_finished_and_starts_nothing_more",
            "coordinator/test_suite_run.py: "
            "test_a_second_signal_does_not_wait_and_the_record_is_whole_all_the_same",
        ),
    ),
    5: (
        "a failed job reported nothing of what had finished",
        (
            "coordinator/test_suite_run.py: test_one_job_that_fails_stops_no_other_and_reports_what_finished",
            "record/test_record_suite.py: test_a_job_that_failed_still_tells_what_had_finished",
        ),
    ),
    6: (
        "retention matched a text and deleted before it counted",
        (
            "record/test_record_retention.py: "
            "test_errors_keeps_the_records_of_rows_that_did_not_go_well_and_no_others",
            "record/test_record_retention.py: test_none_removes_all_of_it_after_it_was_counted",
        ),
    ),
    7: (
        "the fingerprint covered heartbeats and not data, packages, prompts or the server",
        (
            "coordinator/test_coordinator_state.py: "
            "test_what_decides_a_result_is_told_by_its_dotted_name_and_how_the_coordinator_works_is_not",
            "coordinator/test_suite_resume.py: "
            "test_a_resume_is_refused_and_changes_nothing_when_what_decides_the_result_has_changed",
        ),
    ),
    8: (
        "two resumes wrote into one run",
        (
            "coordinator/test_coordinator_state.py: "
            "test_two_processes_never_hold_a_run_at_once_and_a_dead_one_holds_nothing",
            "coordinator/test_suite_run.py: test_status_tells_a_live_run_from_a_dead_one_and_from_none",
        ),
    ),
    9: (
        "a torn last line broke every resume, U+0085 was read as a line's end",
        (
            "coordinator/test_coordinator_events.py: "
            "test_events_are_numbered_on_over_resumes_and_a_torn_tail_is_cut_and_noted",
            "coordinator/test_suite_resume.py: test_a_resume_repairs_torn_tails_and_notes_them",
            "gateway/test_gateway_journal.py: test_a_torn_last_line_is_cut_off_said_and_asked_again",
        ),
    ),
    10: (
        "answers were used again after sampling, template, model or data had changed",
        (
            "coordinator/test_suite_resume.py: "
            "test_a_resume_is_refused_and_changes_nothing_when_what_decides_the_result_has_changed",
            "coordinator/test_suite_resume.py: "
            "test_answers_of_a_target_that_became_another_one_are_never_used",
        ),
    ),
    11: (
        "kept repeats became one sample of pass@k",
        (
            "record/test_record_suite.py: test_repeats_are_answers_only_where_they_may_differ_and_do",
            "gateway/test_gateway_journal.py: "
            "test_equal_requests_get_the_kept_answers_one_by_one_at_any_concurrency",
        ),
    ),
    12: (
        "errors left the denominator",
        (
            "record/test_record_suite.py: test_a_failed_row_never_leaves_the_denominator",
            "coordinator/test_suite_run.py: "
            "test_requests_that_fail_make_a_partial_run_and_a_resume_asks_only_them_again",
        ),
    ),
    13: (
        "silence after thinking was a wrong answer, truncation was not told",
        (
            "record/test_record_suite.py: "
            "test_silence_after_thinking_and_a_cut_are_told_apart_from_wrong_answers",
        ),
    ),
    14: (
        "an overlong request's 400 ended the run",
        ("coordinator/test_suite_run.py: test_a_request_that_is_refused_for_good_costs_its_row_alone",),
    ),
    15: (
        "an unknown task exited 0, Ctrl-C left no record",
        (
            "coordinator/test_backend_mock.py: test_an_unknown_backend_is_refused_with_the_nearest",
            "coordinator/test_suite_run.py: test_a_suite_that_cannot_be_run_makes_no_directory",
            "coordinator/test_suite_run.py: "
            "test_a_signal_ends_everything_keeps_what_finished_and_starts_nothing_more",
        ),
    ),
    16: (
        "what a timed-out command had started went on",
        ("coordinator/test_coordinator_child.py: test_nothing_that_a_child_started_stays_however_it_ended",),
    ),
    17: (
        "retries were multiplied by the client's own",
        ("gateway/test_gateway_faults.py: test_the_clients_own_retries_do_not_multiply",),
    ),
    18: (
        "inputs were hashed when the command had run, a dirty tree was recorded as a clean commit",
        (
            "coordinator/test_suite_run.py: "
            "test_inputs_and_worktree_are_recorded_as_they_were_before_the_first_request",
        ),
    ),
    19: (
        "a full disk corrupted the log",
        (
            "coordinator/test_suite_resume.py: "
            "test_a_full_disk_pauses_the_run_with_a_clear_error_and_a_resume_goes_on",
            "gateway/test_gateway_journal.py: "
            "test_a_disk_that_takes_no_more_fails_the_requests_and_stops_the_asking",
        ),
    ),
}


@cache
def defined_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("number", range(1, 20))
def test_each_mistake_has_its_tests(number: int) -> None:
    what, named = MISTAKES[number]
    assert named, what
    for each in named:
        path, _, name = each.partition(": ")
        assert name in defined_in(TESTS / path), f"{number} ({what}): {each} is not there"
