"""The published form of a run: no text of a task, an answer or an error in it, and every figure."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import pytest
from rocrate.rocrate import ROCrate

from assay.digest import sha256_bytes, sha256_file
from assay.errors import AssayError, ConfigurationError, RunError, VerificationError
from assay.export.texts import name, server
from assay.export.unpack import unpack
from assay.export.write import export
from assay.plan import load_plan
from assay.record.manifest import load_manifest
from assay.record.results import load_summary, load_tasks, summarise
from assay.record.suite_results import load_suite_summary, recompute
from assay.signing.gather import statement_of
from assay.signing.key import make_key
from assay.signing.verify import verify
from assay.view import rows
from assay.view.open import open_run
from audit.altered import Altered
from coordinator.suites import NOBODY, Counting, asking, quiet, write
from standin import Reply, StandIn
from toy_checkout import Toy

SAID = "CANARY the model said"
LONG = 12


@pytest.fixture(scope="module")
def told(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile's run whose every text that may not be published is a canary."""
    folder = tmp_path_factory.mktemp("told")

    def reply(number: int, body: dict[str, Any]) -> Reply:
        return Reply(status=500) if "digit 1" in str(body["messages"]) else Reply(f"{SAID} {number}")

    with StandIn(reply, model="stand-in") as served:
        key = folder / "key"
        key.write_text("none")
        key.chmod(0o600)
        words = ("--base-url", served.base_url, "--model", "stand-in", "--key-file", key)
        done = toy.run("run", "toy", *words, "--runs", folder, "--json")
    run = Altered(Path(done.json["run_dir"]))

    def failed(rows: list[Any]) -> None:
        for row in rows:
            if row["status"] == "errored":
                row["error"] = "CANARY-ERROR of a row"

    def baseline(value: Any) -> None:
        for each in value["baselines"].values():
            each["answer"] = "CANARY-BASELINE"

    def summary(value: Any) -> None:
        value["notes"] = ["CANARY-NOTE"]
        value["failures"] = [{"error": "CANARY-ERROR", "rows": 1}]
        for family in value["families"]:
            family["baseline_answer"] = "CANARY-BASELINE"

    run.lines("samples.jsonl", failed)
    run.json("provenance/tasks/count.json", baseline)
    run.json("summary.json", summary)
    run.json("state.json", lambda value: value.update(error="CANARY-STATE"))
    run.reseal()
    assert {row.status for row in open_run(run.run).samples()} == {"scored", "errored"}
    return run.run


@pytest.fixture
def published(told: Path, tmp_path: Path) -> Path:
    """Its export, unpacked again."""
    export(told, tmp_path / "run.zip")
    return unpack(tmp_path / "run.zip", tmp_path / "in")


def texts(run: Path) -> set[str]:
    """Everything that was said in a run, but for what is too short to be recognised."""
    found: set[str] = set()
    for row, exchange in open_run(run).exchanges():
        assert exchange is not None
        found |= {message.text for message in exchange.messages}
        found |= {str(each) for each in (exchange.target, exchange.scorer, exchange.error, row.error)}
    return {text for text in found if len(text) >= LONG}


def leaked(archive: Path, wanted: set[str]) -> list[tuple[str, str]]:
    """Which of the texts stand in which file of an export, as they are or as JSON has them."""
    found = []
    with ZipFile(archive) as packed:
        for member in packed.namelist():
            content = packed.read(member).decode("utf-8")
            for text in wanted:
                if text in content or json.dumps(text)[1:-1] in content:
                    found.append((member, text))
    return found


def test_no_text_of_a_task_an_answer_or_an_error_is_published(told: Path, tmp_path: Path) -> None:
    export(told, tmp_path / "run.zip")
    wanted = texts(told)
    assert any(text.startswith(SAID) for text in wanted)
    assert any(text.startswith("What comes after") for text in wanted)
    assert leaked(tmp_path / "run.zip", wanted | {"CANARY"}) == []
    # The search finds what is there: the profile's description is published.
    assert leaked(tmp_path / "run.zip", {"two families of three questions"})


def test_no_digest_of_an_answer_is_published(told: Path, tmp_path: Path) -> None:
    export(told, tmp_path / "run.zip")
    digests = {row.answer_digest for row in open_run(told).samples()} - {None}
    digests |= {row.output_digest for row in open_run(told).samples()} - {None}
    assert digests
    assert leaked(tmp_path / "run.zip", {str(digest) for digest in digests}) == []


def test_every_figure_and_condition_is_that_of_the_run(told: Path, published: Path) -> None:
    before, after = open_run(told), open_run(published)
    assert after.kind == "export"
    assert (after.name, after.status, after.model) == (before.name, before.status, before.model)
    assert after.benchmarks() == before.benchmarks()
    pairs = list(zip(before.samples(), after.samples(), strict=True))
    assert pairs
    for one, other in pairs:
        same = (
            "task_key",
            "rollout",
            "cluster",
            "status",
            "reward",
            "rewards",
            "completion_tokens",
            "seconds",
        )
        assert [getattr(one, field) for field in same] == [getattr(other, field) for field in same]
        assert (other.answer_digest, other.output_digest) == (None, None)
        assert after.exchange(other) is None
    assert {exchange for _, exchange in after.exchanges()} == {None}


def test_the_published_summary_follows_from_the_published_rows(published: Path) -> None:
    plan = load_plan(published / "resolved.json")
    recorded = load_summary(published)
    again = summarise(
        plan,
        load_tasks(published, plan),
        list(rows.read(published)),
        recorded.problems,
        recorded.notes,
        False,
        recorded.server,
    )
    assert again == recorded


def test_every_kept_file_is_the_manifests_and_every_other_is_named(told: Path, published: Path) -> None:
    manifest = load_manifest(published)
    assert manifest == load_manifest(told)
    contents = json.loads((published / "export.json").read_bytes())
    kept, derived, omitted = (contents[key] for key in ("kept", "derived", "omitted"))
    assert manifest.keys() <= kept.keys() | derived.keys() | omitted.keys()
    for path, digest in kept.items():
        assert sha256_file(published / path) == digest
        assert path == "manifest.json" or manifest[path] == f"sha256:{digest}"
    assert set(derived) == {"samples.jsonl", "summary.json", "state.json", "provenance/tasks/count.json"}
    for path, each in derived.items():
        assert manifest[path] == f"sha256:{each['original']}"
        assert sha256_file(published / path) == each["sha256"] != each["original"]
    assert "count/traces.jsonl" in omitted
    assert not (published / "count").exists()


def test_the_same_run_gives_the_same_bytes(told: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.zip", tmp_path / "other.zip"
    export(told, one)
    export(told, other)
    assert one.read_bytes() == other.read_bytes()


def test_the_crate_is_read_by_its_own_library(published: Path) -> None:
    crate = ROCrate(published)
    assert crate.metadata["conformsTo"] == "https://w3id.org/ro/crate/1.1"
    assert crate.name == published.name
    listed = {entity.id: entity for entity in crate.data_entities}
    there = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
    assert set(listed) == there - {"ro-crate-metadata.json"}
    for path, entity in listed.items():
        assert entity["sha256"] == sha256_file(published / path)
        assert int(entity["contentSize"]) == (published / path).stat().st_size
    action = crate.dereference("#run")
    assert action["instrument"]["name"] == "Assay"
    assert {each.id for each in action["result"]} == {"summary.json", "samples.jsonl"}
    scores = {each["name"]: each["value"] for each in crate.root_dataset["variableMeasured"]}
    assert scores == {each.name: each.score for each in open_run(published).benchmarks()}


@pytest.mark.slow
def test_a_suites_run_is_published_the_same_way(toy: Toy, runs: Path, tmp_path: Path) -> None:
    with Counting() as served:
        suite = write(
            tmp_path / "small.toml",
            {**NOBODY, "local": served.target(3)},
            [quiet("one", wrong_every=3), asking("two") | {"repeats": 2}, quiet("three", fail_at=2)],
        )
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
    run = Path(done.json["run_dir"])
    export(run, tmp_path / "run.zip")
    there = unpack(tmp_path / "run.zip", tmp_path / "in")
    said = {
        message.text
        for _, exchange in open_run(run).exchanges()
        if exchange is not None
        for message in exchange.messages
        if len(message.text) >= LONG
    }
    assert any(text.startswith("answer ") for text in said)
    assert leaked(tmp_path / "run.zip", said) == []
    assert open_run(there).benchmarks() == open_run(run).benchmarks()
    assert recompute(there).findings() == load_suite_summary(there).findings()
    state = json.loads((there / "state.json").read_bytes())
    problems = {job["id"]: job["problems"] for job in state["jobs"]}
    assert problems["three"] == ["left out (1)"]
    assert problems["one"] == []


def test_what_was_signed_still_follows_from_what_is_published(toy: Toy, runs: Path, tmp_path: Path) -> None:
    private, public, _ = make_key(tmp_path, "key", None)
    done = toy.run("run", "toy", "--runs", runs, "--json", ASSAY_SIGNING_KEY_FILE=str(private))
    export(done.run, tmp_path / "run.zip")
    there = unpack(tmp_path / "run.zip", tmp_path / "in")
    # Scores, counts and intervals stand in the signed bytes; the published summary has the same.
    assert verify(there, public.read_bytes()).statement == statement_of(there)


def test_a_run_whose_files_are_not_its_manifests_is_not_published(told: Path, tmp_path: Path) -> None:
    copy = Altered(tmp_path / told.name)
    shutil.copytree(told, copy.run, symlinks=True)
    copy.json("resolved.json", lambda value: value.update(description="another"))
    with pytest.raises(VerificationError, match=r"resolved\.json .* is not what its manifest says"):
        export(copy.run, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()


def test_a_run_without_a_manifest_is_not_published(told: Path, tmp_path: Path) -> None:
    copy = tmp_path / told.name
    shutil.copytree(told, copy, symlinks=True)
    (copy / "manifest.json").unlink()
    with pytest.raises(VerificationError, match="did not finish"):
        export(copy, tmp_path / "run.zip")


def test_names_that_are_texts_are_told_by_their_digests() -> None:
    assert name("letter_counting/0") == "letter_counting/0"
    text = "What is the capital of France?"
    assert name(text) == f"sha256:{sha256_bytes(text.encode())}"


def test_a_prompt_that_a_server_tells_of_is_not_published() -> None:
    props = {
        "build_info": "b1",
        "default_generation_settings": {"n_ctx": 9, "prompt": "CANARY", "params": {"seed": 1}},
        "last_prompt": "CANARY",
    }
    record: Mapping[str, Any] = {"endpoints": [{"unverified": {"/props": props, "/version": {"v": 1}}}]}
    found = server(record)["endpoints"][0]["unverified"]
    assert found == {
        "/props": {"build_info": "b1", "default_generation_settings": {"n_ctx": 9}},
        "/version": {"v": 1},
    }


def altered(archive: Path, into: Path, change: Mapping[str, bytes | None], **fields: Any) -> Path:
    """A copy of an export with members changed, added or left out; fields of the added ones are set."""
    with ZipFile(archive) as old, ZipFile(into, "w") as new:
        for info in old.infolist():
            if info.filename not in change:
                new.writestr(info, old.read(info))
        for member, content in change.items():
            if content is not None:
                with_fields = zipped(member, **fields)
                new.writestr(with_fields, content)
    return into


def zipped(member: str, **fields: Any) -> ZipInfo:
    """A member's head."""
    head = ZipInfo(member, (1980, 1, 1, 0, 0, 0))
    for key, value in fields.items():
        setattr(head, key, value)
    return head


@pytest.mark.parametrize(
    ("change", "fields", "said"),
    [
        ({"resolved.json": b"{}"}, {}, "resolved.json is "),
        ({"resolved.json": None}, {}, "resolved.json is missing"),
        ({"more.txt": b"x"}, {}, "more.txt is not listed"),
        ({"../out.txt": b"x"}, {}, "is no name of a file below the export"),
        ({"/tmp/out.txt": b"x"}, {}, "is no name of a file below the export"),
        ({"a/../out.txt": b"x"}, {}, "is no name of a file below the export"),
        ({"a\\out.txt": b"x"}, {}, "is no name of a file below the export"),
        ({"link": b"/etc/passwd"}, {"external_attr": 0o120777 << 16}, "is no regular file"),
        ({"resolved.json/x": b"x"}, {}, "is a file and a directory"),
        ({"bomb": b"0" * (1 << 22)}, {"compress_type": 8}, "larger than an export's files are"),
        ({"n" * 300: b"x"}, {}, "is too long a name"),
        ({"export.json": None}, {}, "it holds no export.json"),
        ({"export.json": b"[" * 100_000}, {}, "export.json cannot be read"),
        ({"export.json": b'{"schema_version": "assay/export/v9"}'}, {}, "is of the form assay/export/v9"),
    ],
)
def test_a_file_that_is_no_honest_export_leaves_nothing(
    told: Path, tmp_path: Path, change: dict[str, bytes | None], fields: dict[str, Any], said: str
) -> None:
    export(told, tmp_path / "run.zip")
    file = altered(tmp_path / "run.zip", tmp_path / "bad.zip", change, **fields)
    into = tmp_path / "in"
    with pytest.raises(AssayError) as caught:
        unpack(file, into)
    assert said in str(caught.value)
    assert list(into.iterdir()) == []
    assert not (tmp_path / "out.txt").exists()


def test_a_torn_file_and_a_strange_one_are_refused(told: Path, tmp_path: Path) -> None:
    export(told, tmp_path / "run.zip")
    whole = (tmp_path / "run.zip").read_bytes()
    # A name that says it is UTF-8.
    misnamed = zipped("\u00fc\u00fc", flag_bits=0x800)
    with ZipFile(tmp_path / "named.zip", "w") as archive:
        archive.writestr(misnamed, b"")
    unnamed = (tmp_path / "named.zip").read_bytes().replace("\u00fc\u00fc".encode(), b"\xff\xfe\xfd\xfc")
    for content in (whole[: len(whole) // 2], b"", b"no archive", unnamed):
        (tmp_path / "bad.zip").write_bytes(content)
        with pytest.raises(VerificationError, match="is not an export that can be read"):
            unpack(tmp_path / "bad.zip", tmp_path / "in")


def test_nothing_is_written_over(told: Path, tmp_path: Path) -> None:
    export(told, tmp_path / "run.zip")
    unpack(tmp_path / "run.zip", tmp_path / "in")
    with pytest.raises(ConfigurationError, match="is already there"):
        unpack(tmp_path / "run.zip", tmp_path / "in")
    with pytest.raises(ConfigurationError, match="is not a file"):
        unpack(tmp_path / "none.zip", tmp_path / "in")


def test_a_full_disk_leaves_nothing_and_says_where(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    export(told, tmp_path / "run.zip")
    into = tmp_path / "in"
    into.mkdir()
    monkeypatch.setattr(ZipFile, "writestr", full)
    with pytest.raises(RunError, match=r"disk is full: .*in/new\.zip"):
        export(told, into / "new.zip")
    monkeypatch.setattr(ZipFile, "open", full)
    with pytest.raises(RunError, match=r"disk is full: .*in/run\.zip"):
        unpack(tmp_path / "run.zip", into)
    assert list(into.iterdir()) == []


WITHOUT_SOCKETS = """
import sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise OSError(f"no socket: {event}")
sys.addaudithook(refuse)
from assay.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_neither_command_opens_a_socket(toy: Toy, told: Path, tmp_path: Path) -> None:
    output = tmp_path / "quiet.zip"
    for words in (("export", told, "--output", output), ("import", output, "--into", tmp_path / "in")):
        done = toy.program(sys.executable, "-c", WITHOUT_SOCKETS, *words)
        assert done.code == 0, done.err
    assert (tmp_path / "in" / told.name / "export.json").is_file()


def test_the_commands_say_where_things_are(toy: Toy, told: Path, tmp_path: Path) -> None:
    output = tmp_path / "small.zip"
    done = toy.run("export", told, "--output", output, "--json")
    assert done.code == 0, done.err
    assert done.json["sha256"] == sha256_file(output)
    assert done.json["size_bytes"] == output.stat().st_size
    back = toy.run("import", output, "--into", tmp_path / "in", "--json")
    assert back.code == 0, back.err
    run = Path(back.json["run_dir"])
    assert (run.name, back.json["kind"]) == (told.name, "profile")
    inside = toy.run("export", told, "--output", told / "small.zip")
    assert inside.code == 2
    assert "lies inside the run" in inside.err
    again = toy.run("export", run, "--output", output)
    assert again.code == 5
    assert "is an export already" in again.err
