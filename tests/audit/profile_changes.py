"""What an operator may change in a profile's run; `test_tampering` has, for each, the check that finds it.

Each changes one thing and what would have to follow from it; manifest and signature are made again by the
test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from altered import Altered

from assay.digest import sha256_bytes, sha256_file
from assay.plan import load_plan
from assay.record.render import markdown
from assay.record.results import derive, load_summary, load_tasks, summarise, write_results

Change = Callable[[Altered], object]
TRACES = "count/traces.jsonl"
RESOLVED = "resolved.json"
STATE = "state.json"
SUMMARY = "summary.json"
EVENTS = "events.jsonl"
TASKS = "provenance/tasks/count.json"
LOOKALIKE = "\u0430"  # Cyrillic


def renamed(run: Altered) -> Altered:
    """The run under the name that its changed plan's digest asks for, with that digest in its events."""
    digest = load_plan(run.run / RESOLVED).digest
    events(lambda rows: rows[0].update(digest=digest))(run)
    return Altered(run.run.rename(run.run.with_name(run.run.name[:-8] + digest[:8])))


def derived_again(run: Altered) -> None:
    """Samples and summary as they follow from the changed records, so that these agree again."""
    plan = load_plan(run.run / RESOLVED)
    tasks = load_tasks(run.run, plan)
    before = load_summary(run.run)
    rows, _ = derive(run.run, plan, tasks)
    found = summarise(plan, tasks, rows, before.problems, before.notes, False, before.server)
    write_results(run.run, rows, found)


def shown_again(run: Altered) -> None:
    """`summary.md` as it follows from the changed summary."""
    (run.run / "summary.md").write_text(markdown(load_summary(run.run)), "utf-8")


def summary(change: Callable[[Any], object]) -> Change:
    def both(run: Altered) -> None:
        run.json(SUMMARY, change)
        shown_again(run)

    return both


def traces(change: Callable[[list[Any]], object]) -> Change:
    """A change of the native record, and everything that follows from it made again."""

    def all_of_it(run: Altered) -> None:
        run.lines(TRACES, change)
        count = len((run.run / TRACES).read_bytes().splitlines())
        run.json(STATE, lambda value: value["entries"][0].update(finished=count))
        events(lambda rows: rows[2].update(finished=count))(run)
        derived_again(run)

    return all_of_it


def events(change: Callable[[list[Any]], object]) -> Change:
    def both(run: Altered) -> None:
        run.lines(EVENTS, change)

    return both


def inputs(run: Altered, changed: dict[str, str]) -> None:
    for when in ("before", "after-count"):
        run.json(f"provenance/inputs.{when}.json", lambda value: value["inputs"].update(changed))


def servers(run: Altered, change: Callable[[Any], object]) -> None:
    for when in ("before", "after"):
        run.json(f"provenance/server/count.{when}.json", lambda value: change(value["identity"]))


def trace(episode: Any) -> Any:
    return episode["traces"][0]


def failed(episodes: list[Any]) -> int:
    """Where the first row is that scored nothing."""
    return next(
        index
        for index, episode in enumerate(episodes)
        if trace(episode)["rewards"]["answer_score"]["score"] == 0
    )


def later(text: str, days: int) -> str:
    return (datetime.fromisoformat(text) + timedelta(days=days)).isoformat(timespec="milliseconds")[:-6] + "Z"


def all_dates(value: Any, days: int) -> None:
    """Move every date of a record's own."""
    for name, item in value.items():
        if name in ("at", "started_at", "ended_at"):
            value[name] = later(item, days)
        elif isinstance(item, list):
            for each in item:
                all_dates(each, days)


# What was asked


def a_launch_file_edited_after_the_run(run: Altered) -> Altered:
    """More tokens than were asked for, in every place that tells of it."""
    for name in (RESOLVED, "provenance/launch/count/local.toml"):
        run.text(name, "max_tokens = 64", "max_tokens = 128")
    text = (run.run / "provenance/launch/count/local.toml").read_bytes()
    inputs(run, {"launch:count/local.toml": sha256_bytes(text)})
    resolved = run.run / "count/configs/resolved/eval.json"
    resolved.write_text(resolved.read_text().replace('"max_tokens": 64', '"max_tokens": 128'))
    traces(
        lambda episodes: [
            call["sampling"].update(max_tokens=128)
            for episode in episodes
            for call in trace(episode)["calls"]
        ]
    )(run)
    return renamed(run)


def a_description_that_promises_more(run: Altered) -> Altered:
    run.json(RESOLVED, lambda value: value.update(description="a measure of intelligence"))
    derived_again(run)
    return renamed(run)


def a_smaller_plan_without_the_failed_task(run: Altered) -> Altered:
    """The row that failed is in no plan, list, record, state or event any more."""
    episodes = [json.loads(line) for line in (run.run / TRACES).read_text().splitlines()]
    key = episodes[failed(episodes)]["task"]["key"]
    run.json(RESOLVED, lambda value: value["entries"][0].update(tasks=5))
    run.json(TASKS, lambda value: value.update(tasks=[task for task in value["tasks"] if task["key"] != key]))
    run.json(STATE, lambda value: value["entries"][0].update(planned=5))
    events(lambda rows: rows[2].update(planned=5))(run)
    traces(lambda found: found.pop(failed(found)))(run)
    return renamed(run)


def fewer_tasks_that_nobody_is_told_of(run: Altered) -> Altered:
    """As if the command had asked for five, but without the note that says so."""
    first = {"num_tasks": 5}
    run.json(RESOLVED, lambda value: value["entries"][0].update(tasks=5, over=first))
    return renamed(run)


def an_option_that_no_command_lays_over(run: Altered) -> Altered:
    over = {"env": {"taskset": {"hints": True}}}
    run.json(RESOLVED, lambda value: value["entries"][0].update(over=over))
    return renamed(run)


def another_models_name(run: Altered) -> Altered:
    run.json(RESOLVED, lambda value: value["server"].update(model="larger-model"))
    run.json("provenance/launch/count/overrides.json", lambda value: value.update(model="larger-model"))
    resolved = run.run / "count/configs/resolved/eval.json"
    resolved.write_text(resolved.read_text().replace("toy-model", "larger-model"))
    traces(
        lambda episodes: [
            call.update(model="larger-model") for episode in episodes for call in trace(episode)["calls"]
        ]
    )(run)
    servers(run, lambda value: value["model"].update(name="larger-model"))
    return renamed(run)


def another_models_identity(run: Altered) -> None:
    """Who answered, as its server would say it, before and after."""
    servers(run, lambda value: value["model"].update(file_sha256="1" * 64))
    servers(run, lambda value: value.update(system_fingerprint="assay-fedcba9876543210"))
    summary(lambda value: value.update(server="assay-fedcba9876543210"))(run)


def another_models_identity_with_its_lock(run: Altered) -> None:
    another_models_identity(run)
    path = run.run / "provenance/pins/models.lock"
    before = run.run / "provenance/inputs.before.json"
    old = json.loads(before.read_text())["inputs"]["model:toy-model"]
    path.write_text(path.read_text().replace(old, "1" * 64))
    inputs(run, {"model:toy-model": "1" * 64, "file:models.lock": sha256_file(path)})


def containers_that_were_none(run: Altered) -> Altered:
    """A run on the host that says it was isolated, wherever it says so itself."""
    image = "sha256:" + "2" * 64
    run.json(RESOLVED, lambda value: value.update(runtime="docker", egress="cut", image=image))
    run.json("provenance/environment.json", lambda value: value.update(runtime="docker", egress="cut"))
    inputs(run, {"sandbox:image": image})
    limits = load_plan(run.run / RESOLVED).docker.model_dump(mode="json")
    for name, value in (
        ("sandbox", {"image": {"image_id": image}}),
        ("containers/count", {"limits": limits, "containers": []}),
    ):
        path = run.run / f"provenance/{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value, indent=2) + "\n")
    derived_again(run)
    return renamed(run)


# What was answered


def one_byte_of_an_answer(run: Altered) -> None:
    path = run.run / TRACES
    at = path.read_bytes().rindex(b"</answer>")
    data = bytearray(path.read_bytes())
    data[at - 1] ^= 1
    path.write_bytes(data)


def a_failed_row_removed(run: Altered) -> None:
    traces(lambda episodes: episodes.pop(failed(episodes)))(run)


def a_failed_row_replaced_by_a_good_one_again(run: Altered) -> None:
    def change(episodes: list[Any]) -> None:
        at = failed(episodes)
        episodes[at] = next(each for index, each in enumerate(episodes) if index != at)

    traces(change)(run)


def a_good_row_under_the_key_of_the_failed_one(run: Altered) -> None:
    def change(episodes: list[Any]) -> None:
        at = failed(episodes)
        good = json.loads(json.dumps(next(each for each in episodes if each is not episodes[at])))
        good["task"] = {**good["task"], "key": episodes[at]["task"]["key"]}
        good["task"]["data"]["id"] = episodes[at]["task"]["data"]["id"]
        episodes[at] = good

    traces(change)(run)


def a_row_doubled(run: Altered) -> None:
    traces(lambda episodes: episodes.append(episodes[0]))(run)


def a_task_key_that_looks_alike(run: Altered) -> None:
    """The failed row is one of a task that is written almost like it, and never was asked."""

    def change(episodes: list[Any]) -> None:
        task = episodes[failed(episodes)]["task"]
        task["data"]["id"] = task["key"] = task["key"].replace("t", "\u0442").replace("g", "\u0261")

    traces(change)(run)


def a_reward_that_is_no_number(run: Altered) -> None:
    path = run.run / TRACES
    path.write_bytes(path.read_bytes().replace(b'"score": 0.0', b'"score": NaN', 1))


def a_reward_that_stands_twice(run: Altered) -> None:
    """A reader that takes the first sees a success; ours takes the last."""
    path = run.run / TRACES
    path.write_bytes(path.read_bytes().replace(b'"score": 0.0', b'"score": 1.0, "score": 0.0', 1))


def a_reward_of_samples_and_summary_alone(run: Altered) -> None:
    run.lines(
        "samples.jsonl", lambda rows: [row.update(reward=1.0, rewards={"answer_score": 1.0}) for row in rows]
    )
    summary(lambda value: [each.update(score=1.0, low=1.0, high=1.0) for each in value["families"]])(run)


def a_family_that_looks_alike(run: Altered) -> None:
    other = "l\u0435tter"
    run.lines(
        "samples.jsonl",
        lambda rows: [row.update(family=other) for row in rows if row["family"] == "letter"],
    )
    summary(lambda value: value["families"][0].update(family=other))(run)


def the_seconds_of_the_samples(run: Altered) -> None:
    run.lines("samples.jsonl", lambda rows: [row["seconds"].update(total_s=0.001) for row in rows])


def a_baseline_in_plan_and_summary(run: Altered) -> None:
    run.json(TASKS, lambda value: value["baselines"]["letter"].update(score=0.0))
    derived_again(run)


# What was told of it


def a_score(run: Altered) -> None:
    summary(lambda value: value["families"][0].update(score=1.0))(run)


def an_interval_made_narrow(run: Altered) -> None:
    summary(lambda value: value["families"][0].update(low=0.66, high=0.67))(run)


def a_count_of_errors(run: Altered) -> None:
    def change(value: Any) -> None:
        for counts in (value["counts"], value["entries"][0]["counts"], value["families"][0]["counts"]):
            counts.update(scored=counts["scored"] - 1, errored=1)

    summary(change)(run)


def a_family_made_up(run: Altered) -> None:
    summary(
        lambda value: value["families"].append({**value["families"][0], "family": "proofs", "score": 1.0})
    )(run)


def a_note_of_approval(run: Altered) -> None:
    summary(lambda value: value.update(notes=["verified by an independent laboratory"]))(run)


def a_confidence(run: Altered) -> None:
    summary(lambda value: value.update(confidence=0.99))(run)


# When it was


def the_dates_of_the_state(run: Altered) -> None:
    run.json(STATE, lambda value: all_dates(value, 30))


def every_date_but_the_rollouts_own(run: Altered) -> Altered:
    run.json(STATE, lambda value: all_dates(value, 1))
    events(lambda rows: [all_dates(row, 1) for row in rows])(run)
    profile, stamp = run.run.name.split(".")
    moved = datetime.strptime(stamp[:16], "%Y%m%dT%H%M%SZ") + timedelta(days=1)
    return Altered(run.run.rename(run.run.with_name(f"{profile}.{moved:%Y%m%dT%H%M%SZ}{stamp[16:]}")))


def the_date_in_the_directorys_name(run: Altered) -> Altered:
    profile, stamp = run.run.name.split(".")
    return Altered(run.run.rename(run.run.with_name(f"{profile}.20200101{stamp[8:]}")))


def the_order_of_start_and_end(run: Altered) -> None:
    run.json(STATE, lambda value: value["entries"][0].update(started_at=later(value["ended_at"], 1)))


def the_seconds_that_were_counted(run: Altered) -> None:
    run.json("provenance/seconds.json", lambda value: value.update(wall=7200.0))


def an_event_removed(run: Altered) -> None:
    def change(rows: list[Any]) -> None:
        del rows[2]
        rows[2]["n"] = 3

    events(change)(run)


def an_event_removed_and_its_number_missed(run: Altered) -> None:
    events(lambda rows: rows.pop(1))(run)


def an_event_that_tells_of_more_rows(run: Altered) -> None:
    events(lambda rows: rows[2].update(finished=60, planned=60))(run)


# The form of the record


def a_summary_in_another_order(run: Altered) -> None:
    path = run.run / SUMMARY
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items())), indent=2) + "\n")


def a_plan_in_another_order(run: Altered) -> None:
    path = run.run / RESOLVED
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items())), indent=2) + "\n")


def a_state_on_one_line(run: Altered) -> None:
    path = run.run / STATE
    path.write_text(json.dumps(json.loads(path.read_text())))


def a_score_that_stands_twice(run: Altered) -> None:
    run.text(SUMMARY, '"score": 0.666667', '"score": 1.0,\n      "score": 0.666667')


def a_commit_that_stands_twice(run: Altered) -> None:
    run.text("provenance/worktree.json", '"commit":', '"commit": "0000",\n  "commit":')


def a_file_added_at_the_top(run: Altered) -> None:
    (run.run / "results.html").write_text("100 %")


def a_file_added_to_the_provenance(run: Altered) -> None:
    (run.run / "provenance/approved.json").write_text("{}\n")


def a_link_beside_the_summary(run: Altered) -> None:
    (run.run / "best.json").symlink_to(SUMMARY)


def a_link_in_the_place_of_the_samples(run: Altered) -> None:
    (run.run / "samples.jsonl").rename(run.run / "count/samples.jsonl")
    (run.run / "samples.jsonl").symlink_to("summary.md")


def a_name_that_looks_alike(run: Altered) -> None:
    """A second summary, whose name only a program can tell from the first's."""
    text = (run.run / SUMMARY).read_text()
    (run.run / SUMMARY.replace("a", LOOKALIKE)).write_text(text.replace("0.666667", "1.0"))


def a_name_with_what_nobody_sees(run: Altered) -> None:
    (run.run / "count/traces\u200b.jsonl").write_bytes((run.run / TRACES).read_bytes())
