"""Runs in the evaluator's environment: its own command's dry run of many launches, imported only once.

Reads a JSON list of lists of words from stdin and prints one of what each ended with: null, or the words in
which it was refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from verifiers.v1.cli.eval.main import main


def refusal(words: list[str]) -> str | None:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(words)
    except SystemExit as ended:
        return None if ended.code in (None, 0) else f"{ended.code}: {said.getvalue()}"
    return None


json.dump([refusal(words) for words in json.load(sys.stdin)], sys.stdout)
