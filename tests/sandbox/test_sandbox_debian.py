"""A base from Debian packages can be made in a checkout whose path holds what debootstrap breaks at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.sandbox import debian
from assay.sandbox.images import DebianBase


def test_debootstrap_gets_a_path_without_spaces_that_leads_to_the_right_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/debootstrap"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nset -e\nshift 3\necho made > $1/made\necho "$1"\n')
    program.chmod(0o755)
    monkeypatch.setattr(debian, "SYSTEM_PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    root, log = tmp_path / "a b/root", tmp_path / "log"
    root.parent.mkdir()
    debian.bootstrap(
        DebianBase(suite="bookworm", include=("python3",), python="", python_version=""), root, log
    )
    assert (root / "made").read_text() == "made\n"
    assert not os.path.lexists(log.read_text().strip()), "the other way to it is gone"
