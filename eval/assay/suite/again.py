"""A suite read once more from the text that a run has kept of its file, without the file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from assay.errors import ConfigurationError
from assay.suite.assemble import assemble
from assay.suite.faults import FaultyError, build
from assay.suite.read import read_suite, split
from assay.suite.suite import Suite

NOTHING: dict[str, str] = {}


def again(reference: str, text: str) -> Suite:
    """The suite that a reference named when its file had this text.

    Args:
        reference: As `assay.suite.read` takes it; a file that it names is not opened.
        text: Of the file; empty where a profile was named.

    Raises:
        ConfigurationError: the text is no suite, or there is no such profile.
    """
    named, chosen = split(reference)
    try:
        if not text:
            return read_suite(reference, NOTHING).suite
        if named.endswith(".json"):
            return build(Suite, json.loads(text), "")
        return assemble(tomllib.loads(text), Path(named).stem, chosen)
    except FaultyError as faults:
        raise ConfigurationError(
            "the kept text of the suite has faults", "; ".join(faults.found), ""
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError("the kept text of the suite cannot be read", str(error), "") from error
