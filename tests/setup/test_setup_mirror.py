"""Mirrors that lack something, and fetches that do not end well: told, and nothing half-made is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream import REPOSITORY, World, git

from git_servers import smart_http

MODULE = "environments/counting/counting/__init__.py"


def test_a_tag_that_names_another_commit_in_the_mirror_is_refused(world: World) -> None:
    git(world.upstream.bare, "tag", "--force", "v1.0", world.upstream.revisions["second"])
    done = world.setup("--sources-only")
    assert done.returncode == 5
    assert "does not give the pinned tag v1.0 of the source envs" in done.stderr
    assert f"pinned is {world.upstream.revisions['first']}" in done.stderr
    assert "--mirror DIR|URL" in done.stderr.partition("next: ")[2]
    assert not world.source.exists()


def test_a_mirror_without_the_tag_is_told(world: World) -> None:
    git(world.upstream.bare, "tag", "--delete", "v1.0")
    done = world.setup("--sources-only")
    assert done.returncode == 3
    assert "couldn't find remote ref refs/tags/v1.0" in done.stderr
    assert not world.source.exists()


def test_a_pinned_commit_with_a_submodule_is_refused(world: World) -> None:
    line = f"160000,{world.upstream.revisions['first']},vendored"
    git(world.upstream.work, "update-index", "--add", "--cacheinfo", line)
    world.pin(world.upstream.publish("submodule"))
    done = world.setup("--sources-only")
    assert done.returncode == 5
    assert "has the submodule vendored" in done.stderr
    assert not world.source.exists()


def test_a_pinned_commit_with_a_link_that_leads_out_is_refused(world: World) -> None:
    (world.upstream.work / "outside").symlink_to("../../../etc")
    world.pin(world.upstream.commit("link", {}))
    done = world.setup("--sources-only")
    assert done.returncode == 5
    assert "holds a link that leads out of it: outside" in done.stderr
    assert not world.source.exists()


def test_a_mirror_that_lacks_the_repository_or_the_commit_is_told(world: World, tmp_path: Path) -> None:
    done = world.setup("--sources-only", mirror=tmp_path)
    assert done.returncode == 3
    assert f"the mirror {tmp_path} does not give the source envs ({REPOSITORY} at " in done.stderr
    assert "it holds no repository of that path or name" in done.stderr
    world.pin("f" * 40)
    done = world.setup("--sources-only")
    assert done.returncode == 3
    assert f"({REPOSITORY} at {'f' * 40})" in done.stderr
    assert not world.source.exists()


def test_every_source_that_cannot_be_had_is_named_and_the_others_are_kept(world: World) -> None:
    lock = world.tiny.root / "prime-envs.lock"
    more = "".join(
        f'[[source]]\nname = "{name}"\nrepository = "https://git.example/team/{name}"\n'
        f'revision = "{"e" * 40}"\n'
        for name in ("other", "third")
    )
    lock.write_text(more + lock.read_text())
    world.describe('sources = ["envs"]', 'sources = ["other", "envs", "third"]')
    done = world.setup("--sources-only")
    assert done.returncode == 3
    assert "2 sources cannot be had" in done.stderr
    assert "https://git.example/team/other" in done.stderr
    assert "https://git.example/team/third" in done.stderr
    assert (world.source / MODULE).is_file()


def test_a_mirror_that_wants_a_password_is_told_without_a_prompt(world: World) -> None:
    with smart_http(world.upstream.mirror, password="s3cret") as address:
        done = world.setup("--sources-only", mirror=address)
    assert done.returncode == 3
    assert "does not give the source envs" in done.stderr
    assert not world.source.exists()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("https://me:s3cret@git.example", "holds a user or a password"),
        ("ssh://git.example/", "is not reached by ssh://"),
        ("ext::sh -c id", "is no directory"),
        ("/nowhere", "is no directory"),
    ],
)
def test_a_mirror_that_cannot_be_one_is_refused(world: World, place: str, reason: str) -> None:
    done = world.setup("--sources-only", mirror=place)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "s3cret" not in done.stderr


def test_a_fetch_that_was_cut_off_leaves_nothing_that_is_taken_for_a_source(world: World) -> None:
    partial = world.source.with_name(".envs.partial")
    (partial / ".git").mkdir(parents=True)
    (partial / "half.py").write_text("")
    assert world.check().returncode == 3
    world.fetch()
    assert world.check().returncode == 0
    assert not partial.exists()


def test_options_that_contradict_one_another_are_refused(world: World) -> None:
    for words in (["--check", "--mirror", "x"], ["--sources-only", "--rebuild"]):
        done = world.tiny.run("eval/scripts/setup", "upstream", *words)
        assert done.returncode == 2
        assert "cannot be combined" in done.stderr
