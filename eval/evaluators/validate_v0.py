"""What the missing dry run of Verifiers 0.1 would do: `python -P validate_v0.py LAUNCH.toml`.

It runs in an evaluator's own environment. The command's own `main` reads the file and builds its
configuration; where it would begin to ask, it is handed back instead. Arguments that the environment's
loader does not have are found by its signature, since only loading would find them otherwise, and loading
needs the data.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from verifiers.scripts import eval as command
from verifiers.utils.env_utils import import_env_module


def read(file: str) -> Any:
    """The one evaluation that the command would run for the file; SystemExit where it refuses."""
    found: list[Any] = []

    async def held(run: Any) -> None:
        found.extend(run.evals)

    command.run_evaluations = held
    try:
        command.main([file, "--disable-tui"])
    except (ValueError, TypeError, KeyError, OSError, ImportError) as error:
        raise SystemExit(str(error)) from error
    if len(found) != 1:
        raise SystemExit(f"{file} holds {len(found)} evaluations, expected one")
    return found[0]


def unknown_arguments(env_id: str, given: Mapping[str, Any]) -> list[str]:
    """The arguments that the environment's loader does not have, sorted."""
    parameters = inspect.signature(import_env_module(env_id).load_environment).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return sorted(set(given) - set(parameters))


def main(file: str) -> None:
    """Validate the file: prints nothing where it is valid."""
    config = read(file)
    unknown = unknown_arguments(config.env_id, config.env_args)
    if unknown:
        raise SystemExit(f"{config.env_id}: load_environment has no argument {', '.join(unknown)}")


if __name__ == "__main__":
    main(sys.argv[1])
