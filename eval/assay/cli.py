"""The `assay` command: one parser, one place where errors become messages and exit codes.

Each verb is a module of `assay.verbs` with `add(subparsers)`; only the verb that was asked for is imported,
so `assay --help` and the fast verbs start at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import keyword
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from assay import __version__, pinset
from assay.console import complain
from assay.errors import AssayError, CancelledError, ConfigurationError, RunError
from assay.files import disk_full
from assay.pinset import typed
from assay.shell import begin_with_libraries, keep_from_children

VERBS = {
    "model": "fetch and verify served models (models.lock)",
    "serve": "serve a model over HTTP",
    "setup": "make and check the locked environments",
    "data": "fetch and verify pinned task data (datasets.lock)",
    "sandbox": "build and check the sandbox image",
    "validate": "check a suite or profile, and ask nothing",
    "plan": "show what a suite or profile would ask, and ask nothing",
    "run": "run a profile or a suite, and record it",
    "resume": "go on with an unfinished run",
    "campaign": "start a server, ask a suite of it, end it; step by step",
    "status": "say what became of a run, and how to resume it",
    "summarize": "print a run's results again, from its records",
    "audit": "verify a run directory offline",
    "compare": "hold one run against another, task by task",
    "report": "write a run, or two, as one HTML page",
    "keys": "make a key to sign runs with, or name one",
    "export": "write a run's publishable form: figures, no texts",
    "import": "unpack what export wrote, held to its list",
    "reproduce": "ask a server samples of a run again, and compare",
    "reward": "the upstream guide's reward beside ours",
    "doctor": "what this machine has and lacks",
}


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like any other, also as JSON."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationError instead of printing the usage and leaving."""
        raise ConfigurationError(message, "", f"{self.prog} --help")


def parser(verb: str | None) -> argparse.ArgumentParser:
    """The command's parser, with the arguments of one verb (or of none, for the overview)."""
    top = Parser(prog="assay", description="Did the change keep the model's intelligence?")
    top.add_argument("--version", action="version", version=f"assay {__version__}")
    subparsers = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        if name == verb:
            importlib.import_module(f"assay.verbs.{module_of(name)}").add(subparsers)
        else:
            subparsers.add_parser(name, help=summary, add_help=False)
    return top


def module_of(verb: str) -> str:
    """The name of a verb's module, which no word of the language may be."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def shared() -> argparse.ArgumentParser:
    """The options that every verb has, as a parent parser."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line of stdout"
    )
    parent.add_argument("--verbose", action="store_true", help="log more, and show a traceback with an error")
    # Taken out of the words by `pinset.choose` before any verb is imported; here for --help alone.
    parent.add_argument("--pins", metavar="DIR", help="use another pin set (or ASSAY_PINS)")
    return parent


def answer(value: Mapping[str, object]) -> None:
    """Print the one JSON object that `--json` promises, as a line of stdout of its own."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # A lone surrogate out of a stranger's record is no UTF-8; written as an escape it is still the same JSON.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its documented exit code."""
    if argv is None:
        begin_with_libraries()
    keep_from_children()
    words = list(sys.argv[1:] if argv is None else argv)
    return guard(words, lambda: _run(pinset.choose(words)))


def guard(words: Sequence[str], action: Callable[[], int]) -> int:
    """Do the action and return its exit code, or print the error that ended it and return the error's.

    Args:
        words: The command's words; `--json` and `--verbose` among them say how an error is printed.
        action: What may raise.
    """
    try:
        try:
            return action()
        except AssayError as error:
            return _fail(error, words)
        except KeyboardInterrupt:
            return _fail(CancelledError("cancelled"), words)
        except BrokenPipeError:
            raise
        except OSError as error:
            return _fail(_refused(error), words)
        finally:
            # Here, not when the interpreter ends: what stdout refuses is to be seen below, `--help` included.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`assay status RUN | head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(words: Sequence[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), None)
    arguments = parser(verb).parse_args(words)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if arguments.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    return int(arguments.handler(arguments))


def _fail(error: AssayError, words: Sequence[str]) -> int:
    if "--verbose" in words:
        traceback.print_exc()
    error.next = typed(error.next)
    complain(error)
    if "--json" in words:
        parts = {"what": error.what, "why": error.why, "next": error.next}
        answer({"status": "error", "error": parts, "exit_code": error.exit_code})
    return error.exit_code


def _refused(error: OSError) -> AssayError:
    """What the operating system refused, as an error that names the file."""
    name = str(error.filename or "a file")
    told = disk_full(Path(name), error)
    if isinstance(told, AssayError):
        return told
    return RunError(f"{name} cannot be used", error.strerror or str(error), "--verbose shows where")


if __name__ == "__main__":
    sys.exit(main())
