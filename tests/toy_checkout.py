"""A checkout with the real core and a toy of everything else, so that a whole run takes a second.

The evaluation's code is copied as it is and driven by the real command. The environments, the model, the
server and the evaluator are stand-ins with the same faces (tests/toy), whose faults a test can script.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOY = Path(__file__).parent / "toy"
WAIT_S = 120.0

LOCAL = """\
push = false

[client]
type = "eval"
base_url = "http://127.0.0.1:18020/v1"
api_key_var = "ASSAY_API_KEY"

[sampling]
temperature = 0.0
max_tokens = 64
"""

ENTRY = """\
num_rollouts = {rollouts}
max_concurrent = {concurrent}

[env.taskset]
id = "toy_tasks"

[[env.taskset.families]]
name = "letter"
size = {size}

[[env.taskset.families]]
name = "digit"
size = {size}
"""

PROFILES = """\
[toy]
description = "two families of three questions: a toy"
evaluator = "toy"
runtimes = ["docker", "subprocess"]
serve = "toy-model"

[[toy.entry]]
name = "count"
tasks = 6
rollouts = 1

[pair]
description = "two entries, for a server that is already there"
evaluator = "toy"
runtimes = ["subprocess"]

[[pair.entry]]
name = "first"
tasks = 4
rollouts = 2

[[pair.entry]]
name = "second"
tasks = 4
rollouts = 1

[strict]
description = "containers only"
evaluator = "toy"
runtimes = ["docker"]
serve = "toy-model"

[[strict.entry]]
name = "count"
tasks = 6
rollouts = 1
"""

MODELS = """\
[[model]]
name = "toy-model"
distribution = "toy"
version = "1"
wheel = "toy-1-py3-none-any.whl"
wheel_sha256 = "{digest}"
member = "toy/model.gguf"
size_bytes = 11
sha256 = "{digest}"
licence = "Apache-2.0"
source = "some bytes"
"""

EVALUATOR = """\
name = "toy"
version = "1.0"
python = ">=3.11,<3.14"
dialect = "vf-eval"
command = "vf-eval"
tasksets = ["toy_tasks"]
key_variable = "ASSAY_API_KEY"

[environment]
PYTHONDONTWRITEBYTECODE = "1"

[docker]
workdir = "/workspace"
cpu = 1
memory = 1
"""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object that must be the last line of stdout."""
        value = json.loads(self.out.splitlines()[-1])
        assert isinstance(value, dict)
        return value

    @property
    def run(self) -> Path:
        """The run directory that the command told of."""
        return Path(self.err.partition("run directory: ")[2].splitlines()[0])


@dataclass
class Command:
    """A command that was started."""

    warm: Warm
    pid: int
    out: Path
    err: Path

    def wait(self) -> Done:
        """Wait for its end."""
        code = self.warm.code(self.pid)
        return Done(code, self.out.read_text("utf-8"), self.err.read_text("utf-8"))

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def run(self) -> Path:
        """Its run directory, as soon as it has told of it."""
        until(
            lambda: "run directory: " in self.err.read_text("utf-8") and self.err.read_text().count("\n") > 2
        )
        return Done(0, "", self.err.read_text("utf-8")).run


class Warm:
    """The process that forks commands (tests/toy/warm.py)."""

    def __init__(self, root: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(root / "eval"), "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(TOY / "warm.py")],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        self.codes: dict[int, int] = {}

    def start(self, request: dict[str, Any]) -> int:
        """Start a command and return its process id."""
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.until("started")

    def until(self, word: str) -> int:
        """Read answers until one has that word."""
        assert self.process.stdout is not None
        while True:
            answer = json.loads(self.process.stdout.readline())
            if "ended" in answer:
                self.codes[answer["ended"]] = answer["code"]
            if word in answer:
                return int(answer[word])

    def code(self, pid: int) -> int:
        """Wait for a command's exit code (negative: the signal that ended it)."""
        while pid not in self.codes:
            self.until("ended")
        return self.codes.pop(pid)

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)


@dataclass
class Toy:
    """A toy checkout and how its commands are run."""

    root: Path
    outputs: Path
    count: int = 0
    warm: Warm | None = None
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self, **variables: str) -> dict[str, str]:
        """What its commands run with."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ASSAY_", "QWEN_"))}
        return {**kept, "PYTHONPATH": str(self.root / "eval"), **variables}

    def start(self, *words: str | Path, **variables: str) -> Command:
        """Start the command in a process of its own."""
        self.warm = self.warm or Warm(self.root)
        self.count += 1
        out, err = (self.outputs / f"{self.count}.{name}" for name in ("out", "err"))
        for path in (out, err):
            path.touch()
        request = {
            "argv": [str(word) for word in words],
            "cwd": str(self.root),
            "env": self.environment(**variables),
            "stdout": str(out),
            "stderr": str(err),
        }
        return Command(self.warm, self.warm.start(request), out, err)

    def run(self, *words: str | Path, **variables: str) -> Done:
        """Run the command to its end."""
        return self.start(*words, **variables).wait()

    def cold(self, *words: str | Path, **variables: str) -> Done:
        """Run the command as a shell would: a new interpreter, which imports everything."""
        return self.program(*self.words(*words), **variables)

    def program(self, *command: str | Path, **variables: str) -> Done:
        """Run a program in the checkout, with what its commands run with."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def words(self, *words: str | Path) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "assay.cli", *(str(word) for word in words)]

    def changed(self) -> list[str]:
        """The paths that are not as committed, as `git status` tells them."""
        return self.git("status", "--porcelain", "--untracked-files=all").splitlines()

    def restore(self) -> None:
        """Make it what was committed."""
        self.git("reset", "-q", "--hard")
        self.git("clean", "-q", "-d", "--force")

    def git(self, *words: str) -> str:
        """Run Git in it."""
        command = ["git", "-C", str(self.root), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @contextmanager
    def entry(self, profile: str, entry: str, toy: dict[str, Any], **changed: int) -> Iterator[None]:
        """An entry's TOML with a table `[toy]` and other sizes, while the block runs."""
        path = self.root / "eval/configs" / profile / f"{entry}.toml"
        before = path.read_bytes()
        values = {"rollouts": 1, "concurrent": 2, "size": 3, **changed}
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in toy.items())
        path.write_text(ENTRY.format(**values) + "\n[toy]\n" + table)
        try:
            yield
        finally:
            path.write_bytes(before)

    @contextmanager
    def profile(self, table: str, entry: str, text: str) -> Iterator[None]:
        """One more profile with an entry, while the block runs.

        Args:
            table: What `profiles.toml` says of it; the first line is its header.
            entry: The entry's name.
            text: The entry's TOML.
        """
        configs = self.root / "eval/configs"
        path, folder = configs / "profiles.toml", configs / table.strip().partition("]")[0].strip("[")
        before = path.read_bytes()
        folder.mkdir()
        (folder / f"{entry}.toml").write_text(text)
        path.write_bytes(before + table.encode())
        try:
            yield
        finally:
            path.write_bytes(before)
            shutil.rmtree(folder)

    @contextmanager
    def faults(self, **faults: object) -> Iterator[None]:
        """Faults of the toy server, while the block runs."""
        path = self.root / ".assay/toy-faults.json"
        path.write_text(json.dumps(faults))
        try:
            yield
        finally:
            path.unlink()


def make(root: Path) -> Toy:
    """Write a toy checkout below `root` and commit it."""
    checkout, outputs = root / "checkout", root / "outputs"
    outputs.mkdir(parents=True)
    write_core(checkout)
    write_stand_ins(checkout)
    git = ["git", "-C", str(checkout), "-c", "user.name=toy", "-c", "user.email=toy@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "toy"]):
        subprocess.run([*git, *words], check=True, stdin=subprocess.DEVNULL)
    return Toy(checkout, outputs)


def write_core(checkout: Path) -> None:
    """The real core, its configuration in miniature."""
    replaced = ("setup", "models", "sandbox")
    ignored = shutil.ignore_patterns("__pycache__", *replaced)
    shutil.copytree(ROOT / "eval/assay", checkout / "eval/assay", ignore=ignored)
    for name in replaced:
        # The verbs of the same names are the real ones' and were left out with them.
        package = checkout / "eval/assay" / name
        package.mkdir()
        shutil.copy(TOY / f"face_{name}.py", package / "__init__.py")
    shutil.copy(ROOT / "eval/assay/models/pins.py", checkout / "eval/assay/models/pins.py")
    (checkout / "eval/scripts").mkdir()
    (checkout / "eval/scripts/run").write_text("#!/bin/sh\n")
    (checkout / ".gitignore").write_text("__pycache__/\n.assay/\n.venv/\neval/runs/\n")
    configs = checkout / "eval/configs"
    configs.mkdir()
    (configs / "local.toml").write_text(LOCAL)
    (configs / "profiles.toml").write_text(PROFILES)
    sizes = {
        "toy/count": {"rollouts": 1, "size": 3},
        "strict/count": {"rollouts": 1, "size": 3},
        "pair/first": {"rollouts": 2, "size": 2},
        "pair/second": {"rollouts": 1, "size": 2},
    }
    for name, values in sizes.items():
        (configs / name).parent.mkdir(exist_ok=True)
        (configs / f"{name}.toml").write_text(ENTRY.format(concurrent=2, **values))


def write_stand_ins(checkout: Path) -> None:
    """The toy evaluator and taskset, the toy model, the toy server, and the locks that pin them."""
    package = checkout / "eval/tasksets/toy_tasks/toy_tasks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""The toy taskset."""\n')
    for name in ("tasks", "describe"):
        shutil.copy(TOY / f"{name}.py", package / f"{name}.py")
    evaluator = checkout / "eval/evaluators/toy"
    binaries = evaluator / ".venv/bin"
    binaries.mkdir(parents=True)
    (evaluator / "evaluator.toml").write_text(EVALUATOR)
    shutil.copy(TOY / "evaluator.py", evaluator / "vf_eval.py")
    for name, program in (("python", ""), ("vf-eval", f" {evaluator / 'vf_eval.py'}")):
        script = binaries / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} -S{program} "$@"\n')
        script.chmod(0o755)
    for lock in ("build.lock", "requirements.lock"):
        (checkout / lock).write_text("# nothing\n")
        (evaluator / lock).write_text("# nothing\n")
    shutil.copy(ROOT / "flake.lock", checkout / "flake.lock")
    (checkout / "runtime").mkdir()
    (checkout / "runtime/Dockerfile").write_text("FROM scratch\n")
    server = checkout / "server"
    server.mkdir()
    (server / "__init__.py").write_text('"""The toy server."""\n')
    shutil.copy(TOY / "server_main.py", server / "__main__.py")
    shutil.copy(Path(__file__).with_name("standin.py"), server / "standin.py")
    model = checkout / ".assay/models/toy-model/model.gguf"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"toy weights")
    digest = hashlib.sha256(b"toy weights").hexdigest()
    (checkout / "models.lock").write_text(MODELS.format(digest=digest))


def until(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Wait until the condition holds; an error when it does not in a generous time."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)


def processes(run_name: str) -> list[str]:
    """The command lines of living processes that a run started: its name is in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            content = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and run_name.encode() in content:
            found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found
