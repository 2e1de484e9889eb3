"""A checkout in miniature: the real set-up code and scripts over locks of two tiny wheels.

Its package index is a directory of wheels made here, so that a set-up takes a second and needs no network.
The build backend is its own too, since an editable install must run one.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.setup import tool

ROOT = Path(__file__).parents[1]
CODE = (
    *("__init__", "bootstrap", "cli", "console", "digest", "errors", "files", "names", "paths", "pinset"),
    *("equipment", "process", "shell", "tools"),
)
REPORT = ("__init__", "library")
CHARTS = {"tinychart/chart.js": b"// draws\n", "tinychart/chart.css": b".chart {}\n"}
VERBS = ("__init__", "doctor", "model", "setup")

PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "assay"
version = "0.1.0"

[tool.hatch.build.targets.wheel]
packages = ["eval/assay"]
"""

BACKEND = '''\
"""Builds the one editable wheel that the tiny checkout needs."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from wheels import write_wheel

def build_editable(directory, config_settings=None, metadata_directory=None):
    root = Path(__file__).parent
    files = {"_assay.pth": f"{root}/eval\\n".encode()}
    scripts = b"[console_scripts]\\nassay = assay.cli:main\\n"
    return write_wheel(Path(directory), "assay", "0.1.0", files, {"entry_points.txt": scripts}).name
'''


def write_wheel(
    directory: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    metadata: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a pure wheel that holds the files, with a RECORD of their digests; returns its path."""
    info = f"{name}-{version}.dist-info"
    tags = b"Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content = dict(files)
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    content[f"{info}/WHEEL"] = tags
    content.update((f"{info}/{key}", value) for key, value in (metadata or {}).items())
    record = "".join(f"{path},{record_digest(data)},{len(data)}\n" for path, data in content.items())
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100755 if ".data/scripts/" in member else 0o100644) << 16
            archive.writestr(entry, data)
    return path


def record_digest(data: bytes) -> str:
    """The digest as RECORD files write it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def pin(wheel: Path, name: str, version: str) -> str:
    """A line of a lock for the wheel."""
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def library_lock(wheel: Path) -> str:
    """A lock of the report's chart library, which is the two files of the wheel."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lines = [f'{key} = "tinychart"' for key in ("distribution", "name", "source")]
    lines += [f'{key} = "1.0"' for key in ("version", "library_version")]
    lines += [f'wheel = "{wheel.name}"', f'wheel_sha256 = "{digest}"', 'licence = "MIT"']
    for member, data in CHARTS.items():
        digest = hashlib.sha256(data).hexdigest()
        lines += ["[[file]]", f'member = "{member}"', f'sha256 = "{digest}"']
    return "\n".join(lines) + "\n"


@dataclass
class Tiny:
    """A tiny checkout and how its commands are run."""

    root: Path
    home: Path
    wheels: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def site(self) -> Path:
        """The site-packages of its environment `assay`."""
        return next(self.root.glob(".venv/lib/python3.*/site-packages"))

    @property
    def stamp(self) -> Path:
        """What says that its environment `assay` is whole."""
        return self.root / ".venv" / "assay-environment.json"

    def environment(self) -> dict[str, str]:
        """What its commands run with: the pinned uv first on PATH, an empty HOME, and no network."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("UV_", "ASSAY_", "PIP_"))
        }
        uv = str(tool.existing().path.parent)
        return {
            **kept,
            "PATH": f"{uv}{os.pathsep}{kept['PATH']}",
            "HOME": str(self.home),
            "ASSAY_PYTHON": base_python(),
            "UV_FIND_LINKS": str(self.wheels),
            "UV_OFFLINE": "1",
            **self.variables,
        }

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its commands (a script's path or a program's) with extra variables."""
        return subprocess.run(
            [str(self.root / words[0]), *words[1:]],
            cwd=self.root,
            env={**self.environment(), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def setup(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run its set-up of the environment `assay`."""
        return self.run("eval/scripts/setup", "assay", *words, **variables)


def base_python() -> str:
    """The interpreter that the test environment was made with."""
    return os.path.realpath(sys.executable)


def make(root: Path) -> Tiny:
    """Write a tiny checkout below `root`; nothing is set up in it yet."""
    checkout, home, wheels = root / "checkout", root / "home", root / "wheels"
    for directory in (checkout / "eval/assay/verbs", checkout / "tests", home, wheels):
        directory.mkdir(parents=True)
    for name in CODE:
        shutil.copy(ROOT / f"eval/assay/{name}.py", checkout / f"eval/assay/{name}.py")
    (checkout / "eval/assay/report").mkdir()
    for name in REPORT:
        shutil.copy(ROOT / f"eval/assay/report/{name}.py", checkout / f"eval/assay/report/{name}.py")
    for name in VERBS:
        shutil.copy(ROOT / f"eval/assay/verbs/{name}.py", checkout / f"eval/assay/verbs/{name}.py")
    for directory in ("eval/assay/setup", "eval/assay/models", "eval/assay/sources", "eval/scripts"):
        shutil.copytree(ROOT / directory, checkout / directory, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "pyproject.toml").write_text(PYPROJECT)
    (checkout / "backend.py").write_text(BACKEND)
    shutil.copy(__file__, checkout / "wheels.py")
    source = (checkout / "wheels.py").read_text()
    (checkout / "wheels.py").write_text(source.replace("from assay.setup import tool\n", ""))
    built = write_wheel(wheels, "tinybuild", "1.0", {"tinybuild.py": b"ready = True\n"})
    build = pin(built, "tinybuild", "1.0")
    content = {"tinypure/__init__.py": b"value = 1\n", "tinypure/data.txt": b"x"}
    pure = write_wheel(wheels, "tinypure", "1.0", content)
    (checkout / "build.lock").write_text(build)
    (checkout / "requirements.lock").write_text(build + pin(pure, "tinypure", "1.0"))
    shutil.copy(checkout / "requirements.lock", checkout / "tests/requirements.lock")
    chart = write_wheel(wheels, "tinychart", "1.0", CHARTS)
    (checkout / "eval/assay/report/library.lock").write_text(library_lock(chart))
    for name in ("flake.lock", "models.lock"):
        shutil.copy(ROOT / name, checkout / name)
    return Tiny(checkout, home, wheels)
