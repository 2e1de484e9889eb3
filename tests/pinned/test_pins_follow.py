"""The committed locks of the test pin set are those of the stand-ins as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinned import locks, mirror, rows


@pytest.mark.parametrize(
    ("name", "made"), [("datasets.lock", locks.datasets_lock), ("prime-envs.lock", locks.sources_lock)]
)
def test_a_lock_pins_what_the_stand_ins_are(name, made):
    committed = (locks.PINS / name).read_text("utf-8")
    assert committed == made(), "python -m pinned.locks, in tests/, writes it anew"


def test_a_mirror_has_the_same_commits_whenever_it_is_made(tmp_path):
    first, second = (mirror.make(tmp_path / name) for name in ("a", "b"))
    assert first.revisions == second.revisions
    listed = mirror.git(first.repository, "ls-tree", "-r", "--name-only", first.revisions["current"])
    assert "environments/math/aime24/aime24/taskset.py" in listed.splitlines()


def test_a_changed_byte_changes_revision_and_generation():
    held = rows.repositories()[0]
    path = next(iter(held.files))
    changed = rows.Repository(held.name, held.repo, {**held.files, path: held.files[path] + b" "})
    assert changed.revision != held.revision
    found = rows.objects()[0]
    other = rows.BucketObject(found.name, found.part, found.bucket, found.object, found.data + b" ")
    assert other.generation != found.generation


def test_production_pins_nothing_of_the_stand_ins():
    root = Path(locks.PINS).parents[1]
    production = (root / "datasets.lock").read_text("utf-8")
    assert not [held.revision for held in rows.repositories() if held.revision in production]
