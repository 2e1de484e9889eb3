"""The locks of the test pin set, as functions of the stand-ins that they pin.

`python -m pinned.locks`, in tests/, writes them anew after a stand-in was changed; a test holds the committed
ones against this.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hub_standin import lock_entry, sha256
from pinned import mirror, rows

PINS = Path(__file__).parents[1] / "pins"
# A name that no resolver knows: these sources are had from a mirror alone.
REPOSITORY = "https://standin.invalid/prime-envs"
SOURCES = {"prime-envs": "current", "prime-envs-direct": "direct"}
# The harness's program as the pinned Verifiers holds it; the very one of production.
CHAT_SHA256 = "99f77d0c68f8ea9ab00fde62eab91a5e38aaf5f596407ef02fa6dbb989d6663f"
VERIFY = "environments/code/livecodebench/livecodebench/verify.py"
DATASETS = (
    "# Rows made for tests, at revisions of their own. No benchmark. Made by tests/pinned/locks.py.\n\n"
)
STANDINS = "# A stand-in for Prime Envs; Verifiers comes from the index. Made by tests/pinned/locks.py.\n"


def datasets_lock() -> str:
    """`datasets.lock`."""
    found = [
        lock_entry(held.name, held.repo, held.revision, held.files, held.large)
        for held in rows.repositories()
    ]
    return DATASETS + "".join(found) + _bucket_entry()


def _bucket_entry() -> str:
    objects = rows.objects()
    lines = [
        f'    {{ part = "{held.part}", path = {json.dumps(held.object)}, generation = "{held.generation}", '
        f'size_bytes = {len(held.data)}, sha256 = "{sha256(held.data)}" }},\n'
        for held in objects
    ]
    return (
        f'[[dataset]]\nname = "{objects[0].name}"\nsource = "bucket"\nbucket = "{objects[0].bucket}"\n'
        f"size_bytes = {sum(len(held.data) for held in objects)}\nfiles = [\n{''.join(lines)}]\n"
    )


def sources_lock() -> str:
    """`prime-envs.lock`."""
    with tempfile.TemporaryDirectory() as scratch:
        made = mirror.make(Path(scratch) / "mirror")
    programs = {
        "null": CHAT_SHA256,
        "livecodebench": sha256((mirror.TREES / "current" / VERIFY).read_bytes()),
    }
    parts = [
        f'\n[[source]]\nname = "{name}"\nrepository = "{REPOSITORY}"\nrevision = "{made.revisions[tree]}"\n'
        for name, tree in SOURCES.items()
    ]
    parts += [
        f'\n[[program]]\nevaluator = "prime-envs"\nname = "{name}"\nsha256 = "{digest}"\n'
        for name, digest in programs.items()
    ]
    return STANDINS + "".join(parts)


if __name__ == "__main__":
    (PINS / "datasets.lock").write_text(datasets_lock(), "utf-8")
    (PINS / "prime-envs.lock").write_text(sources_lock(), "utf-8")
