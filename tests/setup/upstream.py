"""A tiny checkout whose evaluator takes packages from Git, and the upstream repository with a mirror of it.

The build backend is a stand-in for hatchling with the two hooks that a set-up calls, since an offline test
has no other; the real one builds the real sources' stand-ins in the tests of the pinned profiles.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tiny_checkout import Tiny, make, pin, write_wheel

REPOSITORY = "https://git.example/team/envs"
PROGRAM = 'print("verified")\n'
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{role}_NAME": "upstream" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "upstream@localhost" for role in ("AUTHOR", "COMMITTER")},
}

HATCHLING = '''\
"""Builds an editable wheel of a project, as hatchling would."""
import os, sys, tomllib
from pathlib import Path


def described():
    found = tomllib.loads(Path("pyproject.toml").read_text())
    left = found.get("tool", {}).get("leaves")
    if left:
        Path(left).write_text("left by the build")
    project = found["project"]
    lines = [f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {item}" for item in project.get("dependencies", [])]
    return project, "Metadata-Version: 2.1\\n" + "\\n".join(lines) + "\\n"


def prepare_metadata_for_build_editable(directory, config_settings=None):
    project, text = described()
    info = f"{project['name']}-{project['version']}.dist-info"
    os.mkdir(os.path.join(directory, info))
    Path(directory, info, "METADATA").write_text(text)
    return info


def build_editable(directory, config_settings=None, metadata_directory=None):
    sys.path.insert(0, os.environ["TINY_WHEELS"])
    from wheels import write_wheel
    project, text = described()
    files = {f"_{project['name']}.pth": f"{os.getcwd()}\\n".encode()}
    name, version = project["name"], project["version"]
    return write_wheel(Path(directory), name, version, files, {"METADATA": text.encode()}).name
'''

EVALUATOR = """\
name = "upstream"
version = "1.0"
python = ">=3.11,<3.14"
dialect = "eval"
command = "eval"
sources = ["envs"]
key_variable = "ASSAY_API_KEY"

[environment]

[docker]
workdir = "/workspace"
cpu = 1
memory = 1

[[editable]]
name = "counting"
version = "0.1.0"
source = "envs"
path = "environments/counting"
requires = ["tinypure>=1.0", "tomli ; python_version < '3.0'"]

[[program]]
name = "verify"
file = "envs:environments/counting/verify.py"
harnesses = ["null"]
"""

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "counting"
version = "0.1.0"
dependencies = ['tomli; (python_version<"3.0")', "tinypure >=1.0"]
"""

LOCK = """\
[[source]]
name = "envs"
repository = "{repository}"
revision = "{revision}"
tag = "v1.0"
tag_revision = "{tagged}"

[[program]]
evaluator = "upstream"
name = "verify"
sha256 = "{digest}"
"""


@dataclass
class Upstream:
    """The upstream repository as its owner sees it, and the mirror that holds a bare copy of it."""

    work: Path
    mirror: Path
    revisions: dict[str, str] = field(default_factory=dict)

    @property
    def bare(self) -> Path:
        """The bare copy."""
        return self.mirror / "team" / "envs.git"

    def commit(self, name: str, files: Mapping[str, str | None]) -> str:
        """Commit these files (None removes one), publish the commit, and remember it by that name."""
        for path, text in files.items():
            target = self.work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                target.unlink()
            else:
                target.write_bytes(text.encode())
        git(self.work, "add", "--force", "--all")
        return self.publish(name)

    def publish(self, name: str) -> str:
        """Commit what is staged, and publish it."""
        git(self.work, "commit", "--quiet", "--allow-empty", "--message", name)
        self.revisions[name] = git(self.work, "rev-parse", "HEAD")
        git(self.work, "push", "--quiet", "--force", "--tags", str(self.bare), "HEAD:refs/heads/main")
        return self.revisions[name]


@dataclass
class World:
    """A tiny checkout, and the upstream it is pinned to."""

    tiny: Tiny
    upstream: Upstream

    @property
    def source(self) -> Path:
        """Where the source is checked out."""
        return self.tiny.root / "eval/.sources/envs"

    @property
    def environment(self) -> Path:
        """Where the evaluator's environment is."""
        return self.tiny.root / "eval/evaluators/upstream/.venv"

    def pin(self, revision: str, tagged: str | None = None, **changed: str) -> None:
        """Write the lock."""
        values = {
            "repository": REPOSITORY,
            "revision": revision,
            "tagged": tagged or self.upstream.revisions["first"],
            "digest": sha256(PROGRAM.encode()).hexdigest(),
            **changed,
        }
        (self.tiny.root / "prime-envs.lock").write_text(LOCK.format(**values))

    def describe(self, old: str = "", new: str = "") -> None:
        """Write the evaluator's description, with one thing replaced."""
        path = self.tiny.root / "eval/evaluators/upstream/evaluator.toml"
        assert old in EVALUATOR
        path.write_text(EVALUATOR.replace(old, new, 1) if old else EVALUATOR)

    def setup(self, *words: str, mirror: object = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the set-up of the evaluator, by default from the mirror's directory."""
        place = () if "--check" in words else ("--mirror", str(mirror or self.upstream.mirror))
        return self.tiny.run("eval/scripts/setup", "upstream", *words, *place, **variables)

    def fetch(self, **variables: str) -> None:
        """Have the source checked out."""
        done = self.setup("--sources-only", **variables)
        assert done.returncode == 0, done.stderr

    def check(self) -> subprocess.CompletedProcess[str]:
        """Check the source alone."""
        return self.setup("--sources-only", "--check")


def git(folder: Path, *words: str, **variables: str) -> str:
    """What Git prints, run in the folder with nothing of the user's configuration."""
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", *words],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"git {words}: {done.stderr}"
    return done.stdout.strip()


def make_upstream(root: Path) -> Upstream:
    """An upstream with two commits, "first" (tagged v1.0) and "second", the pinned one."""
    work, mirror = root / "upstream", root / "mirror"
    found = Upstream(work, mirror)
    for folder in (work, found.bare):
        folder.mkdir(parents=True)
    git(work, "init", "--quiet", "--initial-branch=main", "--template=")
    git(found.bare, "init", "--quiet", "--bare", "--initial-branch=main", "--template=")
    project = "environments/counting"
    found.commit("first", {f"{project}/pyproject.toml": PROJECT, ".gitignore": "*.pyc\nbuild/\n"})
    git(work, "tag", "v1.0")
    (work / "AGENTS.md").symlink_to("README.md")
    found.commit(
        "second",
        {
            f"{project}/counting/__init__.py": "answer = 42\n",
            f"{project}/verify.py": PROGRAM,
            "README.md": "Environments $Id$\nof a team\n",
            ".gitattributes": "*.md text eol=crlf ident\n*.bin filter=lfs diff=lfs merge=lfs -text\n",
            "weights.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        },
    )
    return found


def make_world(root: Path) -> World:
    """A tiny checkout pinned to an upstream's second commit."""
    tiny = make(root)
    upstream = make_upstream(root)
    home = tiny.root / "eval/evaluators/upstream"
    home.mkdir(parents=True)
    built = write_wheel(
        tiny.wheels,
        "hatchling",
        "1.0",
        {"hatchling/__init__.py": b"", "hatchling/build.py": HATCHLING.encode()},
    )
    (home / "build.lock").write_text(pin(built, "hatchling", "1.0"))
    pure = tiny.wheels / "tinypure-1.0-py3-none-any.whl"
    (home / "requirements.lock").write_text(pin(built, "hatchling", "1.0") + pin(pure, "tinypure", "1.0"))
    tiny.variables["TINY_WHEELS"] = str(tiny.root)
    world = World(tiny, upstream)
    world.describe()
    world.pin(upstream.revisions["second"])
    return world


@contextmanager
def as_it_was(world: World) -> Iterator[World]:
    """The world, put back after the block from a copy made before it."""
    root = world.tiny.root.parent
    saved = root.with_name(f"{root.name}.saved")
    shutil.copytree(root, saved, symlinks=True)
    try:
        yield world
    finally:
        shutil.rmtree(root)
        saved.rename(root)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refuse(world: World, *reasons: str, words: tuple[str, ...] = ("--sources-only",)) -> None:
    """A set-up refuses the checkout, says why and how to go on, and changes nothing of it."""
    before = tree(world.source)
    done = world.setup(*words)
    assert done.returncode == 5, done.stderr
    for reason in reasons:
        assert reason in done.stderr
    assert "it is left as it is" in done.stderr
    moved = "next: mv eval/.sources/envs eval/.sources/envs.saved && eval/scripts/setup --sources-only"
    assert moved in done.stderr
    assert tree(world.source) == before
