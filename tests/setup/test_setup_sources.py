"""Pinned sources: fetched by commit over plain Git, every byte verified, what differs left as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from upstream import REPOSITORY, World, git, refuse, tree

from assay.sources.tree import leaves as tree_of
from assay.sources.tree import root_name
from git_servers import daemon, smart_http, static_http

MODULE = "environments/counting/counting/__init__.py"


@pytest.mark.parametrize("way", ["directory", "daemon", "smart HTTP", "static files"])
def test_the_pinned_commit_and_tag_are_fetched_over_plain_git(world: World, way: str) -> None:
    places: dict[str, AbstractContextManager[object]] = {
        "directory": nullcontext(world.upstream.mirror),
        "daemon": daemon(world.upstream.mirror),
        "smart HTTP": smart_http(world.upstream.mirror),
        "static files": static_http(world.upstream.mirror),
    }
    with places[way] as mirror:
        done = world.setup("--sources-only", "--json", mirror=mirror)
    assert done.returncode == 0, done.stderr
    second = world.upstream.revisions["second"]
    assert git(world.source, "rev-parse", "HEAD") == second
    assert git(world.source, "rev-parse", "v1.0^{commit}") == world.upstream.revisions["first"]
    assert git(world.source, "config", "remote.origin.url") == REPOSITORY
    assert f"source envs: {second}: " in done.stdout
    told = json.loads(done.stdout.splitlines()[-1])["sources"][0]
    assert (told["name"], told["revision"], told["path"]) == ("envs", second, "eval/.sources/envs")
    assert world.check().returncode == 0


def test_files_are_the_commits_bytes_whatever_its_attributes_ask_for(here: World) -> None:
    assert (here.source / "README.md").read_bytes() == b"Environments $Id$\nof a team\n"
    assert (here.source / "weights.bin").read_bytes().startswith(b"version https://git-lfs")
    assert (here.source / "AGENTS.md").is_symlink()


def test_without_a_tag_no_history_is_fetched(world: World) -> None:
    lock = world.tiny.root / "prime-envs.lock"
    lock.write_text("".join(line for line in lock.read_text().splitlines(True) if not line.startswith("tag")))
    with daemon(world.upstream.mirror) as address:
        done = world.setup("--sources-only", mirror=address)
    assert done.returncode == 0, done.stderr
    assert git(world.source, "rev-list", "--count", "HEAD") == "1"
    assert world.check().returncode == 0


@pytest.mark.parametrize("name", ["envs", "envs.git", "team/envs", "git.example/team/envs.git"])
def test_a_mirror_may_hold_it_under_its_name_or_its_path(world: World, name: str) -> None:
    other = world.upstream.mirror.with_name("other")
    (other / name).parent.mkdir(parents=True)
    world.upstream.bare.rename(other / name)
    done = world.setup("--sources-only", mirror=other)
    assert done.returncode == 0, done.stderr


def test_a_mirror_of_another_user_is_read(world: World) -> None:
    for path in (world.upstream.mirror, *world.upstream.mirror.rglob("*")):
        os.chown(path, 65534, 65534)
    done = world.setup("--sources-only")
    assert done.returncode == 0, done.stderr


def test_nothing_of_the_users_git_decides_or_runs(world: World, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)
    config = f'[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n[url "/nowhere"]\n\tinsteadOf = {tmp_path}\n'
    (world.tiny.home / ".gitconfig").write_text(config)
    own = str(world.tiny.home / ".gitconfig")
    world.fetch(GIT_DIR="/nowhere", GIT_INDEX_FILE="/nowhere", GIT_CONFIG_GLOBAL=own)
    assert not mark.exists()
    assert world.check().returncode == 0


def test_what_is_there_is_verified_without_being_fetched_again(here: World, tmp_path: Path) -> None:
    before = tree(here.source)
    done = here.setup("--sources-only", mirror=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tree(here.source) == before


def test_a_missing_source_is_exit_3_with_the_command_that_fetches_it(world: World) -> None:
    done = world.check()
    assert done.returncode == 3
    assert "the source envs is not here" in done.stderr
    assert "next: eval/scripts/setup --sources-only [--mirror DIR|URL]" in done.stderr
    assert not world.source.parent.exists()


def test_another_revision_is_refused_and_not_reset(here: World) -> None:
    git(here.source, "checkout", "--quiet", here.upstream.revisions["first"])
    refuse(
        here, f"is at {here.upstream.revisions['first']}", f"pinned is {here.upstream.revisions['second']}"
    )


def test_new_pins_do_not_move_an_old_checkout(here: World) -> None:
    here.pin(here.upstream.commit("third", {"README.md": "new\n"}))
    refuse(here, f"is at {here.upstream.revisions['second']}")


def test_the_command_it_names_leads_on(here: World) -> None:
    (here.source / MODULE).write_text("answer = 43\n")
    moved = here.source.with_name("envs.saved")
    here.source.rename(moved)
    here.fetch()
    assert here.check().returncode == 0
    assert (moved / MODULE).read_text() == "answer = 43\n"


def test_another_origin_is_refused(here: World) -> None:
    git(here.source, "config", "remote.origin.url", "https://git.example/fork/envs")
    refuse(here, "comes from https://git.example/fork/envs", f"pinned is {REPOSITORY}")


def test_another_origin_beside_the_right_one_is_refused(here: World) -> None:
    right = here.source / ".git/config"
    right.write_text(right.read_text().replace("url =", "url = https://git.example/fork/envs\n\turl =", 1))
    refuse(here, "comes from https://git.example/fork/envs", f"pinned is {REPOSITORY}")


def test_folders_too_deep_to_be_read_are_refused_without_a_traceback(here: World) -> None:
    folder = os.open(here.source, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    ended = here.check()
    subprocess.run(["rm", "-r", here.source / "d"], check=True)
    assert (ended.returncode, "too deep" in ended.stderr) == (5, True), ended.stderr[-1000:]


def test_a_clone_that_the_user_made_himself_serves_when_it_is_as_pinned(here: World) -> None:
    shutil.rmtree(here.source)
    git(here.tiny.root, "clone", "--quiet", str(here.upstream.bare), str(here.source))
    git(here.source, "config", "core.autocrlf", "false")
    git(here.source, "config", "--unset", "core.autocrlf")
    git(here.source, "config", "remote.origin.url", f"{REPOSITORY}.git")
    # Its attributes were obeyed there: that file is not the commit's any more.
    refuse(here, "README.md is edited")
    (here.source / "README.md").write_bytes(b"Environments $Id$\nof a team\n")
    assert here.check().returncode == 0


def test_an_edited_file_is_refused(here: World) -> None:
    (here.source / MODULE).write_text("answer = 43\n")
    refuse(here, "is not clean", f"{MODULE} is edited")


def test_an_edit_that_git_was_told_to_overlook_is_refused(here: World) -> None:
    git(here.source, "update-index", "--assume-unchanged", MODULE)
    (here.source / MODULE).write_text("answer = 43\n")
    assert git(here.source, "status", "--porcelain", "--", MODULE) == ""
    refuse(here, f"{MODULE} is edited")


def test_a_file_that_became_a_program_and_one_that_is_gone_are_refused(here: World) -> None:
    (here.source / MODULE).chmod(0o755)
    (here.source / "README.md").unlink()
    refuse(here, f"{MODULE} is edited", "README.md is missing")


@pytest.mark.parametrize(
    "name",
    [
        "environments/counting/counting/extra.py",
        "environments/counting/counting/__pycache__/__init__.cpython-312.pyc",
        "build/lib/counting.py",
        "environments/counting/counting.pth",
        "environments/a name, and a line\nend.py",
    ],
)
def test_a_file_that_no_commit_holds_is_refused_ignored_or_not(here: World, name: str) -> None:
    (here.source / name).parent.mkdir(parents=True, exist_ok=True)
    (here.source / name).write_text("")
    refuse(here, f"{name.rpartition('/')[2].partition(chr(10))[0]}", "is not of the commit")


def test_a_tree_has_the_name_that_git_gives_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--template=")
    for name in ("a/b", "a.b", "a-b", "a0", "b/c/d", "b/c.d", "B", "\u00e4/\u4e2d", "a\nb", "e/.keep"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "B").chmod(0o755)
    (tmp_path / "link").symlink_to("b/c")
    (tmp_path / "empty/folders").mkdir(parents=True)
    git(tmp_path, "add", "--all")
    found = tree_of(tmp_path)
    assert root_name(found) == git(tmp_path, "write-tree")
    assert found["B"].mode == "100755"
    assert found["link"].mode == "120000"


def test_a_file_that_is_neither_file_nor_link_is_refused(here: World) -> None:
    os.mkfifo(here.source / "counting.py")
    refuse(here, "counting.py is not of the commit")


def test_a_link_where_the_checkout_belongs_is_refused(here: World) -> None:
    elsewhere = here.source.with_name("elsewhere")
    here.source.rename(elsewhere)
    here.source.symlink_to(elsewhere)
    for done in (here.check(), here.setup("--sources-only")):
        assert done.returncode == 2
        assert "eval/.sources/envs is a symbolic link where a directory belongs" in done.stderr
        assert "next: remove the link: rm eval/.sources/envs" in done.stderr
    assert here.source.is_symlink()


def test_a_link_to_nowhere_is_not_taken_for_a_missing_source(world: World) -> None:
    world.source.parent.mkdir()
    world.source.symlink_to("/nowhere")
    done = world.setup("--sources-only")
    assert done.returncode == 2
    assert "is a symbolic link" in done.stderr


def test_a_checkout_that_is_part_of_another_repository_is_refused(here: World) -> None:
    (here.source / ".git").rename(here.source.with_name("store"))
    (here.source / ".git").write_text(f"gitdir: {here.source.with_name('store')}\n")
    refuse(here, "is no Git checkout of its own", ".git is no directory")


def test_a_plain_directory_is_refused_though_the_checkout_around_it_is_a_repository(here: World) -> None:
    git(here.tiny.root, "init", "--quiet")
    shutil.rmtree(here.source / ".git")
    refuse(here, "is no Git checkout of its own")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "touch MARK"),
        ("core.sshCommand", "touch MARK"),
        ("core.hooksPath", "."),
        ("core.worktree", "/"),
        ("filter.lfs.clean", "touch MARK"),
        ("diff.external", "touch MARK"),
        ("include.path", "/etc/hostname"),
        ("url.ext::sh -c touch% MARK.insteadOf", "https:"),
    ],
)
def test_a_repository_with_settings_that_start_programs_is_refused_and_starts_none(
    here: World, tmp_path: Path, key: str, value: str
) -> None:
    mark = tmp_path / "ran"
    config = here.source / ".git/config"
    git(here.source, "config", "--file", str(config), key, value.replace("MARK", str(mark)))
    (here.source / ".gitattributes").touch()
    refuse(here, "has settings of its own", key.partition(".")[0])
    assert not mark.exists()


def test_hooks_of_a_checkout_are_never_run(here: World, tmp_path: Path) -> None:
    hooks = here.source / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
        (hooks / name).chmod(0o755)
    assert here.check().returncode == 0
    assert here.setup("--sources-only").returncode == 0
    assert not (tmp_path / "ran").exists()


def test_a_replaced_commit_deceives_nobody(here: World) -> None:
    (here.source / MODULE).write_text("answer = 43\n")
    git(here.source, "add", MODULE)
    git(here.source, "commit", "--quiet", "--message", "other")
    other = git(here.source, "rev-parse", "HEAD")
    git(here.source, "checkout", "--quiet", here.upstream.revisions["second"])
    git(here.source, "replace", here.upstream.revisions["second"], other)
    (here.source / MODULE).write_text("answer = 43\n")
    assert git(here.source, "diff", "HEAD", "--", MODULE) == ""
    refuse(here, f"{MODULE} is edited")


@pytest.mark.parametrize("damage", ["gone", "another commit under its name"])
def test_a_damaged_store_is_refused(here: World, damage: str) -> None:
    first, second = (
        here.source / ".git/objects" / here.upstream.revisions[name][:2] / here.upstream.revisions[name][2:]
        for name in ("first", "second")
    )
    if damage == "gone":
        second.unlink()
    else:
        second.chmod(0o644)
        second.write_bytes(first.read_bytes())
    refuse(here, "the source envs (eval/.sources/envs) ")


@pytest.mark.parametrize("name", ["objects/info/alternates", "info/grafts", "commondir"])
def test_a_store_that_reads_elsewhere_is_refused(here: World, name: str) -> None:
    path = here.source / ".git" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{here.upstream.bare}/objects\n")
    refuse(here, f".git/{name} leads elsewhere")


def test_a_tag_that_was_moved_in_the_checkout_is_refused(here: World) -> None:
    git(here.source, "tag", "--force", "v1.0", here.upstream.revisions["second"])
    refuse(here, f"has the tag v1.0 at {here.upstream.revisions['second']}")
    git(here.source, "tag", "--delete", "v1.0")
    refuse(here, "has no tag v1.0")
