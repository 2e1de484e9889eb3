"""A finished run's directory as a view, whichever of the kinds it is."""

from __future__ import annotations

from pathlib import Path

from assay.coordinator.state import is_suite
from assay.errors import ConfigurationError, VerificationError
from assay.export.contents import is_export
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import run_files
from assay.view.export import ExportView
from assay.view.profile import ProfileView
from assay.view.view import View


def open_run(path: Path) -> View:
    """The run in a directory; nothing is asked, and nothing written.

    Raises:
        VerificationError: it holds no run, the run did not come to its end, or its record cannot be read.
    """
    if not path.is_dir() or path.is_symlink():
        raise VerificationError(f"{path} is not a run directory", "", "list the runs: ls eval/runs")
    # Before anything is opened: a link could lead elsewhere, and a pipe would never end.
    run_files(path)
    if is_export(path):
        return ExportView(path, _recorded(path))
    view = _recorded(path)
    if not (path / MANIFEST).is_file():
        raise VerificationError(
            f"{path} did not come to its end", f"it has no {MANIFEST}", f"assay status {path}"
        )
    return view


def _recorded(path: Path) -> View:
    if is_suite(path):
        # Here alone: a profile's run needs none of it.
        from assay.view.suite import SuiteView

        return SuiteView(path)
    try:
        return ProfileView(path)
    except ConfigurationError as error:
        raise VerificationError(f"{path} is not a run: {error.what}", error.why, "ls eval/runs") from error
