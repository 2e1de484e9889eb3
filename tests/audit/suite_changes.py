"""What an operator may change in a suite's run: by name, with the check that finds it and its words."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from altered import Altered

from assay.gateway.kept import kept_answers, line_of

Change = Callable[[Altered], object]


def row(change: Callable[[dict[str, Any]], object], entry: str) -> Change:
    """Change the first row of a job, and not a byte of the others."""

    def first(run: Altered) -> None:
        path = run.run / "samples.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        at = next(at for at, line in enumerate(lines) if json.loads(line)["entry"] == entry)
        value = json.loads(lines[at])
        change(value)
        lines[at] = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        path.write_bytes(b"".join(lines))

    return first


def job(change: Callable[[dict[str, Any]], object], name: str, file: str = "summary.json") -> Change:
    """Change what a file says of a job."""
    key = "job" if file == "summary.json" else "id"
    return lambda run: run.json(
        file, lambda value: change(next(each for each in value["jobs"] if each[key] == name))
    )


def kept(change: Callable[[list[Any]], list[Any]]) -> Change:
    """Change the kept answers, each with the digest that belongs to it."""

    def rewrite(run: Altered) -> None:
        path = run.run / "answers/asking.jsonl"
        answers = change([(each.request, each.answer) for each in kept_answers(path)])
        path.write_bytes(b"".join(line_of(number, *each) for number, each in enumerate(answers)))

    return rewrite


def other_words(answers: list[Any]) -> list[Any]:
    body = json.loads(answers[0][1].body)
    body["choices"][0]["message"]["content"] = "words that no row holds"
    again = [replace(each, body=json.dumps(body).encode()) for _, each in answers]
    return [(request, each) for (request, _), each in zip(answers, again, strict=True)]


def more_tokens(answers: list[Any]) -> list[Any]:
    request, answer = answers[0]
    return [(request, replace(answer, completion_tokens=1000)), *answers[1:]]


def colder(answers: list[Any]) -> list[Any]:
    request, answer = answers[0]
    body = {**json.loads(request.body), "temperature": 0.0}
    return [(replace(request, body=json.dumps(body).encode()), answer), *answers[1:]]


def another_model(answers: list[Any]) -> list[Any]:
    request, answer = answers[0]
    body = {**json.loads(request.body), "model": "a better one"}
    return [(replace(request, body=json.dumps(body).encode()), answer), *answers[1:]]


def told(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda run: run.json("provenance/launch/asking/attempt-1.json", change)


def word(name: str, before: str, after: str) -> Change:
    return lambda run: run.text(f"provenance/launch/{name}/command.1.json", before, after)


def server(change: Callable[[dict[str, Any]], object], pattern: str = "*.json") -> Change:
    """Change what was recorded of the server that the run started."""

    def every(run: Altered) -> None:
        for path in sorted((run.run / "provenance/server").glob(pattern)):
            run.json(path.relative_to(run.run).as_posix(), lambda value: change(value["endpoints"][0]))

    return every


def inputs(change: Callable[[dict[str, Any]], object], pattern: str = "inputs.*.json") -> Change:
    """Change frozen inputs."""

    def every(run: Altered) -> None:
        for path in sorted((run.run / "provenance").glob(pattern)):
            run.json(path.relative_to(run.run).as_posix(), change)

    return every


def events(change: Callable[[list[dict[str, Any]]], object]) -> Change:
    """Change the events, numbered again."""

    def numbered(rows: list[dict[str, Any]]) -> None:
        change(rows)
        for number, each in enumerate(rows, start=1):
            each["n"] = number

    return lambda run: run.lines("events.jsonl", numbered)


def drop(kind: str) -> Callable[[list[dict[str, Any]]], object]:
    return lambda rows: rows.remove(next(each for each in rows if each["kind"] == kind))


def backwards(rows: list[dict[str, Any]]) -> None:
    rows[-1]["at"] = rows[0]["at"].replace("20", "19", 1)


def forget_program(value: dict[str, Any]) -> None:
    value["inputs"].pop("program:mock_child", None)
    for names in value["jobs"].values():
        if "program:mock_child" in names:
            names.remove("program:mock_child")


def other_program(value: dict[str, Any]) -> None:
    value["inputs"].update(
        {"program:mock_child": "0" * 64} if "program:mock_child" in value["inputs"] else {}
    )


def other_weights(value: dict[str, Any]) -> None:
    value["identity"]["model"]["file_sha256"] = "0" * 64


def duplicated(run: Altered) -> None:
    run.lines("samples.jsonl", lambda rows: rows.insert(1, rows[0]))


def removed(run: Altered) -> None:
    run.lines("samples.jsonl", lambda rows: rows.pop())


def retold(run: Altered) -> None:
    """The suite's text says another limit, in the run and in the digest of it."""
    run.text("provenance/suite.toml", "items = 6", "items = 5")
    digest = hashlib.sha256((run.run / "provenance/suite.toml").read_bytes()).hexdigest()
    run.json("provenance/source.json", lambda value: value.update(text_sha256=digest))


def moved(rows: list[dict[str, Any]]) -> None:
    for each in rows:
        each["at"] = each["at"].replace("20", "19", 1)


def other_day(value: dict[str, Any]) -> None:
    for name in ("started_at", "ended_at"):
        value[name] = value[name].replace("20", "19", 1)


def answered_later(run: Altered) -> None:
    """The kept answers, whose digest is over what was said, are of another century."""
    path = run.run / "answers/asking.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        line["at"] = "2126" + line["at"][4:]
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def other_order(run: Altered) -> None:
    """The same values, the first key last."""
    path = run.run / "provenance/source.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(value.items())), indent=2) + "\n")
    state = run.run / "state.json"
    value = json.loads(state.read_text())
    value["phase"] = value.pop("phase")
    state.write_text(json.dumps(value, indent=2) + "\n")


def inside(change: Change) -> Change:
    """Change the run inside, whose own manifest is made again too."""

    def both(run: Altered) -> None:
        (found,) = (path.parent for path in (run.run / "inside/attempt-1").glob("*/state.json"))
        change(Altered(found))
        Altered(found).reseal()

    return both


def first_trace(episodes: list[Any]) -> None:
    for reward in episodes[0]["traces"][0]["rewards"].values():
        reward["score"] = 1.0 - reward["score"]


CHANGES: dict[str, tuple[Change, str, str]] = {
    "a file added": (
        lambda run: (run.run / "best.json").write_text("{}\n"),
        "form",
        "best.json is nothing that a run writes",
    ),
    "a folder of an attempt that never was": (
        lambda run: shutil.copytree(run.run / "quiet/attempt-1", run.run / "quiet/attempt-2"),
        "form",
        "quiet/attempt-2/records.jsonl is nothing that a run writes",
    ),
    "a name that looks like another": (
        lambda run: shutil.copy(run.run / "summary.json", run.run / "summ\u0430ry.json"),
        "form",
        "is not a plain name",
    ),
    "the order of a file's keys": (other_order, "form", "state.json is not in the form and order"),
    "a key that stands twice": (
        lambda run: run.text("state.json", '"resumed": 0', '"resumed": 0,\n  "resumed": 0'),
        "form",
        'the key "resumed" stands twice',
    ),
    "a key that stands twice in an event": (
        lambda run: run.text("events.jsonl", '"kind":"run-ended"', '"kind":"run-ended","kind":"run-ended"'),
        "form",
        "events.jsonl line",
    ),
    "the day of every event": (events(moved), "times", "events.jsonl 1 (run-started) is dated 19"),
    "the day of the run": (
        lambda run: run.json("state.json", other_day),
        "times",
        "the directory's name says 20",
    ),
    "the day of the kept answers": (answered_later, "times", "answer 0 is dated 2126"),
    "the seconds that it took": (
        lambda run: run.json("state.json", lambda value: value.update(seconds=86400.0)),
        "times",
        "state.json counts 86400.0 s",
    ),
    "a reward of a row": (
        row(lambda value: value.update(reward=0.5), "quiet"),
        "rows",
        "samples.jsonl line 1",
    ),
    "a row removed": (removed, "rows", "differ in number"),
    "a row twice": (duplicated, "tasks", "quiet: task 0 has the rollouts [0, 0]"),
    "a status of a row": (
        row(lambda value: value.update(status="truncated"), "asking"),
        "rows",
        "samples.jsonl line 7",
    ),
    "a score": (job(lambda value: value.update(score=1.0), "quiet"), "summary", "jobs[0].score"),
    "a bound of an interval": (job(lambda value: value.update(high=0.5), "quiet"), "summary", "jobs[0].high"),
    "a count": (
        job(lambda value: value["counts"].update(scored=5, truncated=1), "quiet"),
        "summary",
        "jobs[0].counts.scored",
    ),
    "a figure of the evaluator's own": (
        job(lambda value: value["reported"].update(better=1.0), "inside"),
        "summary",
        "jobs[2].reported.better",
    ),
    "what a job took": (
        job(lambda value: value["effort"].update(completion_tokens=1), "asking"),
        "summary",
        "jobs[1].effort.completion_tokens",
    ),
    "the fingerprint in the summary": (
        lambda run: run.json("summary.json", lambda value: value["targets"][1].update(server="another")),
        "targets",
        "summary.json says that own is another",
    ),
    "the printed table": (
        lambda run: run.text("summary.md", "asking", "ASKING"),
        "summary",
        "summary.md does not show",
    ),
    "the words of a kept answer": (kept(other_words), "answers", "is not among the kept ones"),
    "the tokens of a kept answer": (kept(more_tokens), "answers", "its body tells"),
    "the sampling of a kept request": (kept(colder), "answers", "temperature was 0.0, planned 0.5"),
    "the model of a kept request": (kept(another_model), "answers", "asked for the model 'a better one'"),
    "a kept answer removed": (kept(lambda answers: answers[:-1]), "answers", "7 answers were kept, of 8"),
    "answers of a job that is none": (
        lambda run: shutil.copy(run.run / "answers/asking.jsonl", run.run / "answers/other.jsonl"),
        "answers",
        "answers/other.jsonl belongs to no job",
    ),
    "answers as if they had been set aside": (
        lambda run: (run.run / "answers/asking.jsonl").rename(run.run / "answers/asking.not-used-1.jsonl"),
        "answers",
        "answers/asking.not-used-1.jsonl belongs to no job",
    ),
    "all answers removed": (
        lambda run: (run.run / "answers/asking.jsonl").unlink(),
        "answers",
        "no answer was kept",
    ),
    "the sampling that a child was told": (
        told(lambda value: value["generation"].update(temperature=0.7)),
        "launch",
        "attempt-1.json.generation.temperature",
    ),
    "the address that a child was told": (
        told(lambda value: value.update(base_url="http://192.0.2.1/v1")),
        "launch",
        "which is not its lane",
    ),
    "the model that a child was told": (
        told(lambda value: value.update(model="a better one")),
        "launch",
        "attempt-1.json.model",
    ),
    "the runtime of a command": (
        word("inside", '"subprocess"', '"docker"'),
        "launch",
        "recorded 'docker', computed 'subprocess'",
    ),
    "a secret that a child was given": (
        lambda run: run.json(
            "provenance/launch/quiet/command.1.json", lambda value: value["secrets"].append("OTHER_KEY")
        ),
        "launch",
        "the secret OTHER_KEY",
    ),
    "the limit of a job": (
        lambda run: run.json("resolved.json", lambda value: value["jobs"][0].update(limit=3)),
        "configuration",
        "resolved.json.jobs[0].limit",
    ),
    "the text of the suite": (retold, "configuration", "resolved.json.jobs[0].backend_args.items"),
    "the server after a job": (
        server(lambda value: value["identity"].update(system_fingerprint="another"), "asking.1.after.json"),
        "targets",
        "asking after: identity.system_fingerprint",
    ),
    "the server's model everywhere": (server(other_weights), "targets", "it claims the model"),
    "what the operator declares": (
        lambda run: run.json("provenance/declared.json", lambda value: value["own"].update(engine="fast")),
        "targets",
        "is not what the suite declares",
    ),
    "an input after a job": (
        inputs(other_program, "inputs.after-quiet.1.json"),
        "inputs unchanged",
        "inputs.program:mock_child",
    ),
    "an input everywhere": (inputs(other_program), "checkout", "program:mock_child of this checkout"),
    "an input left out everywhere": (inputs(forget_program), "checkout", "program:mock_child was not frozen"),
    "a look at the inputs left out": (
        lambda run: (run.run / "provenance/inputs.after-asking.1.json").unlink(),
        "inputs unchanged",
        "asking: its inputs were not hashed again",
    ),
    "a lock's copy": (
        lambda run: run.text("provenance/pins/models.lock", "toy-model", "toy-mode1"),
        "pins",
        "provenance/pins/models.lock is not the file that was frozen",
    ),
    "the pin set": (
        lambda run: run.json("resolved.json", lambda value: value.update(pins="test")),
        "pins",
        'the pin set is "test"',
    ),
    "an event removed": (events(drop("job-ended")), "events", "quiet: no event says that it ended"),
    "the moment of an event": (events(backwards), "events", "is earlier than the one before"),
    "the verdict of a job": (
        job(lambda value: value.update(verdict="partial"), "quiet", "state.json"),
        "events",
        "quiet: the events say it ended as",
    ),
    "a problem of a job": (
        job(lambda value: value.update(problems=["the disk smelt"]), "quiet", "state.json"),
        "state",
        "the disk smelt",
    ),
    "a reward inside": (
        inside(lambda run: run.lines("first/traces.jsonl", first_trace)),
        "inside: samples",
        "samples.jsonl line",
    ),
    "a score inside": (
        inside(lambda run: run.json("summary.json", lambda value: value["families"][0].update(score=1.0))),
        "inside: summary",
        "families[0].score",
    ),
    "the limit inside": (
        inside(lambda run: run.json("resolved.json", lambda value: value["entries"][0].update(tasks=3))),
        "inner runs",
        "resolved.json.entries[0].tasks",
    ),
    "an input inside": (
        inside(inputs(lambda value: value["inputs"].update({"file:models.lock": "0" * 64}))),
        "inner runs",
        "file:models.lock was",
    ),
    "the shell": (
        lambda run: run.json("provenance/environment.json", lambda value: value["shell"].update(pinned=True)),
        "shell",
        "pinned is True",
    ),
}
