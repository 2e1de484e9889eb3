"""`assay serve MODEL`: becomes our server, `python -m server`, over a pinned model, a file or a directory.

The core imports nothing of the server: this verb finds the file and replaces itself with the server's own
command, so signals and the exit code are the server's. A pinned model, and one that guesses for it, is
verified by digest first.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from assay.cli import answer, shared
from assay.errors import ConfigurationError
from assay.models import pins, verify

# The server's own options; it checks their values and says what is wrong with them.
OPTIONS = {
    "host": "address to bind (default: 127.0.0.1)",
    "port": "port; 0 is any free one (default: 8080)",
    "key-file": "absolute path of a private file with the API key",
    "threads": "engine threads (default: the engine's choice)",
    "slots": "answers at once (default: 8)",
    "context": "positions a slot holds (default: the engine's choice)",
    "device": "what computes: cpu or cuda (default: cpu)",
    "isa": "instruction set of the CPU: avx512, avx2 or plain (default: the best it has)",
    "kv": "keys and values as f16, int8 or q4 (default: f16)",
    "head": "output head: stored, or q8_0 of one stored as floats (default: stored)",
    "kept-slots": "ended answers kept for prompts that begin alike; 0: no prefix cache (default: 24)",
    "kept-tokens": "positions they keep together (default: 16384)",
    "speculate": "guess tokens, judge several in one step: ngram, or a small model, by name or path "
    "(default: do not)",
    "draft-tokens": "tokens guessed for an answer and step, at most 16 (default: 4)",
    "name": "the model's name in the API (default: the pin's, the file's or the directory's)",
    "ready-file": "written with port and pid once the model answers",
    "vram": "device memory that may be taken, such as 24GiB (default: what is free)",
    "card": "with --plan: whose published figures (default: rtx-3090)",
}
PLAN = "print what a CUDA device needs for the model and how fast a card could be, load nothing, and exit"


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "serve",
        parents=[shared()],
        help="serve a model over HTTP",
        description="Serve a pinned model, a GGUF file or a directory over HTTP until SIGTERM or Ctrl-C.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a name of models.lock, or the path of a GGUF file or directory"
    )
    for option, text in OPTIONS.items():
        parser.add_argument(f"--{option}", help=text)
    parser.add_argument("--plan", action="store_true", help=PLAN)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Replace this process with the server; returns only by raising."""
    model, name = _found(arguments.model)
    options = {option: getattr(arguments, option.replace("-", "_")) for option in OPTIONS}
    options["name"] = options["name"] or name
    if options["speculate"] in pins():
        options["speculate"] = str(verify(options["speculate"]))
    words = [f"--{option}={value}" for option, value in options.items() if value is not None]
    if arguments.plan:
        words += ["--plan", *(["--json"] if arguments.json else [])]
    command = [sys.executable, "-m", "server", str(model), *words]
    if arguments.json and not arguments.plan:
        answer({"status": "starting", "model": str(model), "command": command})
    os.execv(sys.executable, command)


def _found(model: str) -> tuple[Path, str | None]:
    """Return the model's file and, of a pin, its name; a pin wins over a file of the same name."""
    known = pins()
    if model in known:
        return verify(model), model
    path = Path(model)
    if not path.exists():
        names = ", ".join(sorted(known))
        raise ConfigurationError(
            f"there is no model {model}",
            f"it is no file, no directory and no name of models.lock ({names})",
            f"assay serve {next(iter(sorted(known)), 'PATH')}",
        )
    return path, None
