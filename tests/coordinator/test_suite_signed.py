"""A suite's run is signed at each of its ends, and an old statement never stands beside a new manifest."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from suites import NOBODY, Counting, asking, quiet, write

from assay.signing.gather import statement_of
from assay.signing.predicate import EvalRun
from assay.signing.verify import verify
from signed import STATEMENT, key_in
from toy_checkout import Toy, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return key_in(tmp_path_factory.mktemp("suite-key"))


def vouched(run: Path, public: Path) -> EvalRun:
    """What the key says of the run, which is what the run says of itself."""
    found = verify(run, public.read_bytes())
    assert found.statement == statement_of(run)
    return found.predicate


def test_a_suite_s_statement_tells_each_job_and_each_target(
    toy: Toy, runs: Path, tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    private, public = keys
    identity = {
        "schema": "assay/identity/v1",
        "system_fingerprint": "first",
        "model": {"name": "a", "file_sha256": "b" * 64},
    }
    with Counting(identity=lambda number: identity) as server:
        suite = write(
            tmp_path / "told.toml",
            {**NOBODY, "local": server.target(3)},
            [quiet("one", wrong_every=3), asking("two") | {"repeats": 2}],
        )
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json", ASSAY_SIGNING_KEY_FILE=str(private))
    assert done.code == 0, done.err
    said = vouched(done.run, public)
    assert done.json["signed_by"] == verify(done.run, public.read_bytes()).key_id
    assert (said.kind, said.name, said.status, said.resumed) == ("suite", "told", "done", 0)
    assert [(job.name, job.evaluator, job.target, job.rollouts) for job in said.asked] == [
        ("one", "mock", "nobody", 1),
        ("two", "mock", "local", 2),
    ]
    assert [job.counts.planned for job in said.asked] == [6, 12]
    assert [(score.name, score.family is None) for score in said.scores][:1] == [("one", True)]
    jobs = {score.name: score for score in said.scores if score.family is None}
    assert jobs["one"].score == pytest.approx(4 / 6, abs=1e-6)
    assert jobs["one"].low is not None
    looks = {server.record.name: server.endpoints for server in said.servers}
    assert set(looks) == {
        f"provenance/server/{name}.json" for name in ("first.local", "two.1.before", "two.1.after")
    }
    assert {(each.fingerprint, each.model_sha256) for one in looks.values() for each in one} == {
        ("first", "b" * 64)
    }
    assert any(name.name == "suite:configuration" for name in said.materials)
    assert "provenance/launch/one/command.1.json" in [record.name for record in said.asked[0].launch]


def test_a_cancelled_run_is_signed_and_its_resume_withdraws_that_and_signs_its_own(
    toy: Toy, runs: Path, tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    private, public = keys
    key = {"ASSAY_SIGNING_KEY_FILE": str(private)}
    with Counting(delay_s=0.05) as server:
        suite = write(tmp_path / "again.toml", {"local": server.target(2)}, [asking(items=30)])
        command = toy.start("run", "--suite", suite, "--runs", runs, **key)
        run = command.run()
        until(lambda: len(server.requests) > 3)
        command.signal(signal.SIGINT)
        assert command.wait().code == 6
        assert vouched(run, public).status == "cancelled"

        # Killed again and again: whatever stands there, a statement is about the manifest beside it.
        for _ in range(3):
            before = len(server.requests)
            command = toy.start("resume", run, **key)
            until(lambda before=before: len(server.requests) > before + 2)
            assert not (run / STATEMENT).exists(), "it was about a run that is being written into"
            assert not (run / "manifest.json").exists()
            command.signal(signal.SIGKILL)
            command.wait()
            assert not (run / STATEMENT).exists()
        done = toy.run("resume", run, "--json", **key)
        assert done.code == 0, done.err
        said = vouched(run, public)
        assert (said.status, said.resumed) == ("done", 4)
        again = toy.run("resume", run, "--json")
        assert (again.code, again.json["signed_by"]) == (0, done.json["signed_by"]), "nothing was written"


def test_a_resume_without_the_key_leaves_the_run_unsigned_and_a_later_one_signs_what_is_done(
    toy: Toy, runs: Path, tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    private, public = keys
    key = {"ASSAY_SIGNING_KEY_FILE": str(private)}
    with Counting(delay_s=0.05) as server:
        suite = write(tmp_path / "late.toml", {"local": server.target(2)}, [asking(items=12)])
        command = toy.start("run", "--suite", suite, "--runs", runs, **key)
        run = command.run()
        until(lambda: len(server.requests) > 3)
        command.signal(signal.SIGINT)
        assert command.wait().code == 6
        assert (run / STATEMENT).exists()
        done = toy.run("resume", run, "--json")
        assert (done.code, done.json["signed_by"]) == (0, None), done.err
        assert "unsigned: nobody vouches" in done.err
        assert not (run / STATEMENT).exists()
    manifest = (run / "manifest.json").read_bytes()
    assert toy.run("resume", run, "--json", **key).json["signed_by"] is not None
    assert (run / "manifest.json").read_bytes() == manifest
    assert vouched(run, public).status == "done"
    (run / STATEMENT).unlink()
    (run / "summary.md").write_text("another\n")
    refused = toy.run("resume", run, **key)
    assert refused.code == 5
    assert "summary.md" in refused.err
    assert not (run / STATEMENT).exists(), "nobody vouches for what is not as it was recorded"


def test_a_child_that_is_a_run_itself_hears_nothing_of_the_key(
    toy: Toy, runs: Path, tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    private, _ = keys
    suite = write(tmp_path / "quiet.toml", NOBODY, [quiet(items=400, sleep=0.01)])
    command = toy.start("run", "--suite", suite, "--runs", runs, ASSAY_SIGNING_KEY_FILE=str(private))
    run = command.run()
    children: set[bytes] = set()

    def seen() -> bool:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environ = (path / "environ").read_bytes()
                parent = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            except OSError:
                continue
            if parent == str(command.pid):
                children.add(environ)
        return bool(children)

    until(seen)
    command.signal(signal.SIGINT)
    command.wait()
    assert (run / STATEMENT).exists()
    for environ in children:
        assert b"ASSAY_SIGNING" not in environ
        assert str(private).encode() not in environ
    for path in run.rglob("*"):
        if path.is_file():
            assert str(private).encode() not in path.read_bytes(), path
