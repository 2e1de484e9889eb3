"""`assay audit RUN`: verify a run directory offline."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.audit import output
from assay.audit.check import Check
from assay.audit.report import audit as audit_run
from assay.cli import answer, shared
from assay.console import Diagnostics, printable, say
from assay.errors import VerificationError
from assay.paths import output_file
from assay.run.state import now
from assay.signing.key import load_public_key, take_signing_key
from assay.signing.vsa import Verification

STYLES = {"PASS": "green", "FAIL": "bold red", "UNKNOWN": "yellow"}
SHOWN = 20


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("audit", parents=[shared()], help="verify a run directory offline")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument("--key", metavar="PUB", type=Path, help="the only public key that is believed (PEM)")
    parser.add_argument("--rescore", action="store_true", help="score the saved answers again")
    parser.add_argument("--strict", action="store_true", help="what cannot be told counts as failed")
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="write what was found, outside the run; signed where ASSAY_SIGNING_KEY_FILE names a key",
    )
    parser.set_defaults(handler=audit)


def audit(arguments: argparse.Namespace) -> int:
    """Print each check with its verdict and evidence; exit 5 when one fails."""
    key = None if arguments.key is None else load_public_key(arguments.key)
    own = None
    if arguments.output is not None:
        output_file(arguments.output, [arguments.run])
        # Taken before anything is started: no child hears of it.
        own = take_signing_key(os.environ)
    checks = audit_run(arguments.run, key, arguments.rescore)
    failing = {"FAIL", "UNKNOWN"} if arguments.strict else {"FAIL"}
    failed = [check.name for check in checks if check.verdict in failing]
    stream = cast("TextIO", Diagnostics()) if arguments.json else sys.stdout
    console = Console(file=stream, highlight=False)
    with console.capture() as captured:
        console.print(_table(checks))
    stream.write(captured.get())
    code = VerificationError.exit_code if failed else 0
    told = {
        "run_dir": str(arguments.run.resolve()),
        "status": "failed" if failed else "verified",
        "exit_code": code,
        "failed": failed,
        "checks": [asdict(check) for check in checks],
    }
    if arguments.output is not None:
        found = Verification(
            checks=[asdict(check) for check in checks],
            passed=not failed,
            strict=arguments.strict,
            rescored=arguments.rescore,
            trusted_key=None if key is None else key.key_id,
            at=now(),
        )
        output.write(arguments.run, arguments.output, found, told, own)
        say(f"assay: {'signed' if own else 'unsigned'}: {arguments.output}")
    if arguments.json:
        answer(told)
    return code


def _table(checks: list[Check]) -> Table:
    grid = Table("check", "verdict", "basis", box=box.SIMPLE)
    # Folded, not cut: a digest or a path is of use only whole.
    grid.add_column("evidence", overflow="fold")
    for check in checks:
        lines = list(check.evidence[:SHOWN])
        if len(check.evidence) > SHOWN:
            lines.append(f"and {len(check.evidence) - SHOWN} more (see --json)")
        verdict = Text(check.verdict, STYLES[check.verdict])
        grid.add_row(check.name, verdict, check.basis, Text(printable("\n".join(lines))))
    return grid
