"""From a run's directory to one file that can be published: chosen, without texts, listed, and packed.

Every file that is taken is held against the run's manifest first, so that nothing is published that the run
does not vouch for. The same run gives the same bytes.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from assay import __version__
from assay.coordinator.state import is_suite
from assay.digest import sha256_file
from assay.errors import VerificationError
from assay.export import texts
from assay.export.choice import SERVER, below_run, fates
from assay.export.contents import CRATE, NAME, RUN_NAME, STATEMENT, Contents, Derived, is_export
from assay.export.crate import metadata
from assay.files import disk_full, read_json, replacing, write_json_atomic
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import load_manifest, run_files
from assay.record.results import SAMPLES, SUMMARY, load_summary
from assay.record.sample import TaskPlan
from assay.record.suite_results import load_suite_summary
from assay.run.state import NAME as STATE
from assay.view import rows
from assay.view.open import open_run

SHA = "sha256:"
# The earliest moment that a ZIP can name: a file's own times are no part of what is published.
MOMENT = (1980, 1, 1, 0, 0, 0)
MODE = 0o100644 << 16


def export(run: Path, output: Path) -> Contents:
    """Write the published form of a finished run into a file.

    Raises:
        VerificationError: it is no finished run, or its files are not what its manifest says.
        RunError: the disk is full.
    """
    if not run.is_dir() or run.is_symlink():
        raise VerificationError(f"{run} is not a run directory", "", "list the runs: ls eval/runs")
    if is_export(run):
        raise VerificationError(f"{run} is an export already", "", "publish the file that it came from")
    run_files(run)
    run = run.resolve()
    if not re.fullmatch(RUN_NAME, run.name):
        raise VerificationError(
            f"{run.name!r} is no name of a run", "a run is published under its name", "give it back its name"
        )
    # What is written is told by its folder: the operating system names no file when a disk is full.
    place = Path(tempfile.gettempdir()) / output.name
    try:
        with tempfile.TemporaryDirectory() as name:
            contents = _fill(run, Path(name))
            place = output
            pack(Path(name), output)
    except OSError as error:
        raise disk_full(place, error) from error
    return contents


def _fill(run: Path, folder: Path) -> Contents:
    manifest = load_manifest(run)
    kept, derived, omitted = {}, {}, {}
    for path, fate in fates(manifest).items():
        recorded = manifest[path]
        if fate == "omitted" or not recorded.startswith(SHA):
            omitted[path] = recorded.removeprefix(SHA)
            continue
        original = recorded.removeprefix(SHA)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(run, path, target, original)
        if fate == "derived" and _derive(run, path, target):
            derived[path] = Derived(sha256=sha256_file(target), original=original)
        else:
            kept[path] = original
    for path in (MANIFEST, STATEMENT):
        if (run / path).is_file():
            (folder / path).write_bytes((run / path).read_bytes())
            kept[path] = sha256_file(folder / path)
    contents = Contents(
        assay=__version__,
        run=run.name,
        kind="suite" if is_suite(run) else "profile",
        kept=dict(sorted(kept.items())),
        derived=derived,
        omitted=omitted,
    )
    write_json_atomic(folder / NAME, contents.model_dump(mode="json"))
    digests = {**contents.digests, NAME: sha256_file(folder / NAME)}
    # Of what is published, not of the run: no text can come from there.
    write_json_atomic(folder / CRATE, metadata(folder, open_run(folder), contents, digests))
    return contents


def _copy(run: Path, path: str, target: Path, digest: str) -> None:
    """Copy a file; what was copied is what the manifest says."""
    try:
        content = (run / path).read_bytes()
    except OSError as error:
        raise VerificationError(
            f"{run / path} cannot be read", error.strerror or "", f"assay audit {run}"
        ) from error
    target.write_bytes(content)
    if sha256_file(target) != digest:
        raise VerificationError(
            f"{path} of {run} is not what its manifest says", f"expected {digest}", f"assay audit {run}"
        )


def _derive(run: Path, path: str, target: Path) -> bool:
    """Take the texts out of a copy; False where there were none, and it stays as it was."""
    before = target.read_bytes() if SERVER.match(below_run(path)) else b""
    name = target.name
    if path == SAMPLES:
        _rows(target)
    elif path == SUMMARY and is_suite(run):
        found = texts.suite_summary(load_suite_summary(target.parent))
        write_json_atomic(target, found.model_dump(mode="json"))
    elif path == SUMMARY:
        write_json_atomic(target, texts.summary(load_summary(target.parent)).model_dump(mode="json"))
    elif name == STATE:
        write_json_atomic(target, texts.state(read_json(target)))
    elif SERVER.match(below_run(path)):
        write_json_atomic(target, texts.server(read_json(target)))
        return target.read_bytes() != before
    else:
        plan = texts.tasks(TaskPlan.model_validate(read_json(target)))
        write_json_atomic(target, plan.model_dump(mode="json"))
    return True


def _rows(target: Path) -> None:
    taken = texts.Rows()
    with replacing(target) as write:
        for row in rows.read(target.parent):
            write(taken.row(row).model_dump_json().encode("utf-8") + b"\n")


def pack(folder: Path, output: Path) -> None:
    """Write a folder's files into one ZIP, in the order of their names, as if they had no times."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as scratch:
        made = Path(scratch) / output.name
        with ZipFile(made, "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for path in paths:
                entry = ZipInfo(path.relative_to(folder).as_posix(), MOMENT)
                entry.compress_type = ZIP_DEFLATED
                entry.external_attr = MODE
                entry.create_system = 3
                archive.writestr(entry, path.read_bytes(), compresslevel=9)
        made.replace(output)
