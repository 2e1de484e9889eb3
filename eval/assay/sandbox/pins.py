"""Writing the pins of a program that has none yet: the first lock is looked at by a person, then committed.

What a harness's program needs is named without versions, so the first lock holds whatever the package index
has that day. From then on the committed pins decide, and nothing is written here again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from assay import pinset
from assay.console import step
from assay.files import write_atomic
from assay.paths import RUNTIME, owned_directory
from assay.sandbox.programs import export, exported, lock_natively
from assay.sandbox.recipe import load_recipe
from assay.sandbox.record import folder
from assay.sandbox.turn import turn


def write_pins(evaluator: str) -> list[Path]:
    """Write the pins that an evaluator's programs lack, beside the others of the pin set in force.

    Returns:
        The files written; pins that are there are left as they are.

    Raises:
        PrerequisiteError: the evaluator is not set up, or the package index does not answer.
        VerificationError: a program is not the pinned one.
    """
    recipe = load_recipe(evaluator)
    lacking = [program for program in recipe.programs if not recipe.pins(program).is_file()]
    if not lacking:
        return []
    sources = export(lacking, evaluator)
    written = []
    with turn(folder()):
        work = owned_directory(folder() / "first-locks")
        try:
            for program in lacking:
                with step(f"locking the program {program.name}"):
                    path = work / f"{program.sha256}.py"
                    lock_natively(path, sources[program.name])
                    target = (pinset.current().directory or RUNTIME) / f"{program.name}.pins"
                    write_atomic(target, exported(path).encode("utf-8"))
                    written.append(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return written
